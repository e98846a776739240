package upstream

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// What a child inherits unless its server says more. Names are compared
// without case on Windows; a * at the end stands for any rest.
var (
	// safeEnv is inherited everywhere.
	safeEnv = []string{
		"PATH",
		// Locale and time.
		"LANG", "LANGUAGE", "LC_*", "TZ",
		// Temporary files.
		"TMPDIR", "TMP", "TEMP",
		// The user's folders.
		"XDG_*",
		// Proxies: curl reads some in lower case only, others know upper case only.
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "NODE_USE_ENV_PROXY",
		"http_proxy", "https_proxy", "no_proxy", "all_proxy",
		// Certificates of a company's own authority, by who reads them.
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "DENO_CERT",
		"REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "GIT_SSL_CAINFO",
	}
	// safeEnvUnix and safeEnvWindows are the lists of the official SDKs; the
	// Windows one with the siblings that installers and compilers look for.
	safeEnvUnix    = []string{"HOME", "LOGNAME", "SHELL", "TERM", "USER"}
	safeEnvWindows = []string{
		"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE",
		"PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432",
		"SYSTEMDRIVE", "SYSTEMROOT", "USERNAME", "USERPROFILE", "WINDIR",
		"ALLUSERSPROFILE", "COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)", "COMMONPROGRAMW6432",
		"NUMBER_OF_PROCESSORS", "OS", "PUBLIC", "USERDOMAIN",
	}
)

// Environ returns the environment of the child as NAME=value, sorted by name
// and each name once: from parent (as os.Environ returns it) what is safe or
// named in InheritEnv, or all of it with InheritAll, and over that Env. On
// Windows names are the same whatever their case, and Env's spelling stays.
//
// A value of parent that begins with "()" is a shell function, which runs code
// in some shells: as in the SDKs, it is never inherited.
func (s *Spec) Environ(parent []string) []string {
	return s.environ(parent, runtime.GOOS == "windows")
}

// environ is Environ for either kind of system.
func (s *Spec) environ(parent []string, windows bool) []string {
	fold := func(name string) string { return name }
	wanted := slices.Concat(safeEnv, safeEnvUnix, s.InheritEnv)
	if windows {
		fold = strings.ToUpper
		wanted = slices.Concat(safeEnv, safeEnvWindows, s.InheritEnv)
	}
	inherits := func(name string) bool {
		return s.InheritAll || slices.ContainsFunc(wanted, func(w string) bool {
			if stem, ok := strings.CutSuffix(w, "*"); ok {
				return strings.HasPrefix(fold(name), fold(stem))
			}
			return fold(name) == fold(w)
		})
	}
	merged := make(map[string]string) // folded name -> NAME=value
	for _, entry := range parent {
		// Windows keeps a folder per drive under names that begin with "=".
		name, value, ok := strings.Cut(entry, "=")
		if ok && name != "" && !strings.HasPrefix(value, "()") && inherits(name) {
			merged[fold(name)] = entry
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		merged[fold(name)] = name + "=" + s.Env[name]
	}
	env := make([]string, 0, len(merged))
	for _, key := range slices.Sorted(maps.Keys(merged)) {
		env = append(env, merged[key])
	}
	return env
}

// lookupEnv returns the value of name in env, a list as of os.Environ, of
// which the last entry counts.
func lookupEnv(env []string, name string) (string, bool) {
	for _, entry := range slices.Backward(env) {
		if key, value, ok := strings.Cut(entry, "="); ok && sameEnvName(key, name) {
			return value, true
		}
	}
	return "", false
}

// setEnv returns a copy of env in which name has the given value.
func setEnv(env []string, name, value string) []string {
	kept := slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		key, _, _ := strings.Cut(entry, "=")
		return sameEnvName(key, name)
	})
	return append(kept, name+"="+value)
}

// sameEnvName reports whether a and b name one variable on this system.
func sameEnvName(a, b string) bool {
	return a == b || runtime.GOOS == "windows" && strings.EqualFold(a, b)
}

// expandHome replaces a leading ~/ by the user's home folder, which getenv
// knows. Without one the path stays as it is.
func expandHome(path string, getenv func(string) (string, bool)) string {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok || rest != "" && !os.IsPathSeparator(rest[0]) {
		return path
	}
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if home, _ := getenv(name); home != "" {
			return filepath.Join(home, rest)
		}
	}
	return path
}
