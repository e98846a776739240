package upstream

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestEnviron(t *testing.T) {
	tests := []struct {
		name    string
		windows bool
		spec    Spec
		parent  []string
		want    []string
	}{
		{
			name: "safe list, sorted",
			parent: []string{
				"USER=ada", "HOME=/h", "PATH=/bin", "SHELL=/bin/sh", "TERM=xterm", "LOGNAME=ada",
				"LANG=de_DE.UTF-8", "LC_TIME=C", "TZ=UTC", "TMPDIR=/t", "XDG_CONFIG_HOME=/c",
				"HTTPS_PROXY=p", "no_proxy=n", "SSL_CERT_FILE=/f", "NODE_EXTRA_CA_CERTS=/n",
				"AWS_SECRET_ACCESS_KEY=s", "SSH_AUTH_SOCK=/s", "NODE_OPTIONS=--inspect", "home=/x", "APPDATA=A",
			},
			want: []string{
				"HOME=/h", "HTTPS_PROXY=p", "LANG=de_DE.UTF-8", "LC_TIME=C", "LOGNAME=ada", "NODE_EXTRA_CA_CERTS=/n",
				"PATH=/bin", "SHELL=/bin/sh", "SSL_CERT_FILE=/f", "TERM=xterm", "TMPDIR=/t", "TZ=UTC", "USER=ada",
				"XDG_CONFIG_HOME=/c", "no_proxy=n",
			},
		},
		{
			name:   "env over what is inherited, empty values kept",
			spec:   Spec{Env: map[string]string{"PATH": "/mine", "KEY": "a=b", "EMPTY": ""}},
			parent: []string{"PATH=/bin", "LANG="},
			want:   []string{"EMPTY=", "KEY=a=b", "LANG=", "PATH=/mine"},
		},
		{
			name:   "named",
			spec:   Spec{InheritEnv: []string{"SSH_AUTH_SOCK", "AWS_*", "MISSING"}},
			parent: []string{"SSH_AUTH_SOCK=/s", "ssh_auth_sock=/x", "AWS_REGION=r", "OTHER=o"},
			want:   []string{"AWS_REGION=r", "SSH_AUTH_SOCK=/s"},
		},
		{
			name:   "all, save functions",
			spec:   Spec{InheritAll: true},
			parent: []string{"OTHER=o", "BASH_FUNC_f%%=() { :; }", "PATH=() { :; }", "HOME=/h", "odd", "=C:=C:\\x"},
			want:   []string{"HOME=/h", "OTHER=o"},
		},
		{
			name:   "a function of its own",
			spec:   Spec{Env: map[string]string{"F": "() { :; }"}},
			parent: nil,
			want:   []string{"F=() { :; }"},
		},
		{
			name:   "the last of two counts",
			parent: []string{"HOME=/1", "HOME=/2"},
			want:   []string{"HOME=/2"},
		},
		{
			name:    "Windows: safe list in any case",
			windows: true,
			parent: []string{
				"=C:=C:\\x", "Path=C:\\bin", "SystemRoot=C:\\Windows", "ComSpec=cmd", "ProgramFiles(x86)=P", "windir=W",
				"APPDATA=A", "PATHEXT=.EXE", "Temp=T", "HOME=H", "USER=U", "SECRET=s", "lc_all=C",
			},
			want: []string{
				"APPDATA=A", "ComSpec=cmd", "lc_all=C", "Path=C:\\bin", "PATHEXT=.EXE", "ProgramFiles(x86)=P",
				"SystemRoot=C:\\Windows", "Temp=T", "windir=W",
			},
		},
		{
			name:    "Windows: PATH over Path",
			windows: true,
			spec:    Spec{Env: map[string]string{"PATH": "D:\\bin"}, InheritEnv: []string{"MyVar"}},
			parent:  []string{"Path=C:\\bin", "MYVAR=m"},
			want:    []string{"MYVAR=m", "PATH=D:\\bin"},
		},
		{
			name:    "Windows: one of two spellings",
			windows: true,
			spec:    Spec{Env: map[string]string{"Path": "2", "PATH": "1"}},
			want:    []string{"Path=2"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.spec.environ(tt.parent, tt.windows); !slices.Equal(got, tt.want) {
				t.Errorf("\n got %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestExpandHome(t *testing.T) {
	tests := []struct {
		name, path string
		env        []string
		want       string
	}{
		{"below home", "~/a/b", []string{"HOME=/h"}, filepath.FromSlash("/h/a/b")},
		{"home itself", "~", []string{"HOME=/h"}, filepath.FromSlash("/h")},
		{"without HOME", "~/a", []string{"USERPROFILE=/u"}, filepath.FromSlash("/u/a")},
		{"without any", "~/a", nil, "~/a"},
		{"another's home", "~bob/a", []string{"HOME=/h"}, "~bob/a"},
		{"inside", "/x/~/a", []string{"HOME=/h"}, "/x/~/a"},
		{"empty", "", []string{"HOME=/h"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := expandHome(tt.path, envOf(tt.env...)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
