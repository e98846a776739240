package upstream

import "testing"

func TestExpand(t *testing.T) {
	getenv := envOf("A=1", "EMPTY=", "REF=${A}", "ProgramFiles(x86)=P", "workspaceFolder=/w")
	tests := []struct {
		name, text, want string
		err, hint        string
	}{
		{name: "plain", text: "a $A $ {A} }", want: "a $A $ {A} }"},
		{name: "variables", text: "<${A}${env:A}>", want: "<11>"},
		{name: "set but empty", text: "<${EMPTY}>", want: "<>"},
		{name: "default of what is set", text: "${A:-2}", want: "1"},
		{name: "default of what is empty", text: "${EMPTY:-2}", want: "2"},
		{name: "default of what is not set", text: "${env:B:-a:-b $}", want: "a:-b $"},
		{name: "literal", text: "$${A} $$${A} $$", want: "${A} $${A} $$"},
		{name: "not expanded again", text: "${REF}", want: "${A}"},
		{name: "odd name behind env", text: "${env:ProgramFiles(x86)}", want: "P"},
		{name: "an editor's name that is set", text: "${workspaceFolder}", want: "/w"},

		{name: "not set", text: "${B}", err: "needs the variable B, which is not set",
			hint: "set B where the client that starts coffer is started, or write ${B:-default}"},
		{name: "input", text: "${input:key}", err: "has ${input:key}, which only an editor can fill in",
			hint: "put the value into an environment variable NAME and write ${env:NAME}"},
		{name: "home", text: "${userHome}/x", err: "has ${userHome}, which only an editor can fill in",
			hint: "write ${HOME}, on Windows ${USERPROFILE}"},
		{name: "editor's separator", text: "a${/}b", err: "has ${/}, which only an editor can fill in",
			hint: "write the value itself: coffer serves every client and has no workspace"},
		{name: "editor's command", text: "${command:pick}", err: "has ${command:pick}, which only an editor can fill in",
			hint: "write the value itself: coffer serves every client and has no workspace"},
		{name: "no name", text: "${}", err: "has a ${ } that names no variable", hint: "write ${NAME}, or $${ for a literal ${"},
		{name: "not a name", text: "${a + b}", err: "has a ${ } that names no variable", hint: "write ${NAME}, or $${ for a literal ${"},
		{name: "not closed", text: "${A", err: "has a ${ that is not closed, or one inside another", hint: "write $${ for a literal ${"},
		{name: "nested", text: "${B:-${A}}", err: "has a ${ that is not closed, or one inside another", hint: "write $${ for a literal ${"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := expand(tt.text, getenv)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err || hintOf(err) != tt.hint {
					t.Errorf("got %q, %v, hint %q; want %s, hint %q", got, err, hintOf(err), tt.err, tt.hint)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}
