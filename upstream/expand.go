package upstream

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// variableName is what may stand alone between ${ and }. Behind env: any name
// may, as Windows has ProgramFiles(x86).
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// editorVariables are names that VS Code, Cursor and Claude's plug-ins fill in
// themselves. They count as such only when the environment has none of the name.
var editorVariables = []string{
	"/", "pathSeparator", "userHome", "cwd", "execPath", "extensionInstallFolder",
	"workspaceFolder", "workspaceFolderBasename", "workspaceRoot",
	"file", "fileBasename", "fileBasenameNoExtension", "fileDirname", "fileExtname", "relativeFile",
	"CLAUDE_PLUGIN_ROOT", "CLAUDE_PLUGIN_DATA", "__dirname",
}

// expand replaces the variables of text:
//
//	${VAR}, ${env:VAR}   the variable's value; not set is an error
//	${VAR:-default}      default where VAR is not set or empty, as in a shell
//	$${                  ${
//
// Anything else after ${ is an error, so that no text reaches an upstream half
// expanded. What a variable holds is not expanded again. Every error is a
// *HintError that names no value.
func expand(text string, getenv func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), nil
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			out.WriteString(literal + "${")
			text = rest
			continue
		}
		body, after, closed := strings.Cut(rest, "}")
		if !closed || strings.Contains(body, "${") {
			return "", &HintError{
				Err:  errors.New("has a ${ that is not closed, or one inside another"),
				Hint: "write $${ for a literal ${",
			}
		}
		value, err := variable(body, getenv)
		if err != nil {
			return "", err
		}
		out.WriteString(before + value)
		text = after
	}
}

// variable returns the value of what stands between ${ and }.
func variable(body string, getenv func(string) (string, bool)) (string, error) {
	name, fallback, hasFallback := strings.Cut(body, ":-")
	name, viaEnv := strings.CutPrefix(name, "env:")
	if name == "" || !viaEnv && !variableName.MatchString(name) {
		return "", unknownVariable(name)
	}
	value, set := getenv(name)
	switch {
	case hasFallback && value == "":
		return fallback, nil
	case set:
		return value, nil
	case !viaEnv && slices.Contains(editorVariables, name):
		return "", unknownVariable(name)
	}
	return "", &HintError{
		Err:  fmt.Errorf("needs the variable %s, which is not set", name),
		Hint: fmt.Sprintf("set %[1]s where the client that starts coffer is started, or write ${%[1]s:-default}", name),
	}
}

// unknownVariable is the error of a ${name} that coffer cannot fill in.
func unknownVariable(name string) error {
	scheme, _, hasScheme := strings.Cut(name, ":")
	if !hasScheme && !slices.Contains(editorVariables, name) {
		// The name may be anything that was pasted, so it is not repeated.
		return &HintError{
			Err:  errors.New("has a ${ } that names no variable"),
			Hint: "write ${NAME}, or $${ for a literal ${",
		}
	}
	hint := "write the value itself: coffer serves every client and has no workspace"
	switch {
	case scheme == "input":
		hint = "put the value into an environment variable NAME and write ${env:NAME}"
	case name == "userHome":
		hint = "write ${HOME}, on Windows ${USERPROFILE}"
	}
	return &HintError{Err: fmt.Errorf("has ${%s}, which only an editor can fill in", name), Hint: hint}
}
