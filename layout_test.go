package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport is who may import what beside the standard library: one direction,
// from main down. mcp-go is on no list: it is the other side in tests and must
// not be linked into coffer.
var mayImport = map[string][]string{
	".": {"coffer/proxy", "coffer/upstream", "coffer/clients", "coffer/prefs", "coffer/siblings", "coffer/logfile", "coffer/tick", "github.com/urfave/cli/v2", "github.com/rs/zerolog",
		"github.com/rogpeppe/go-internal/diff", "golang.org/x/sys/unix", "golang.org/x/term",
		"coffer/jsonrpc"}, // the demo's client and servers, and what a call's result says
	"proxy":                 {"coffer/upstream", "coffer/cache", "coffer/prefs", "coffer/jsonrpc", "github.com/rs/zerolog", "github.com/yosida95/uritemplate/v3"},
	"upstream":              {"coffer/jsonrpc", "github.com/rs/zerolog", "github.com/tailscale/hujson", "github.com/gofrs/flock", "golang.org/x/sys/unix", "golang.org/x/sys/windows"},
	"clients":               {"coffer/upstream", "github.com/pelletier/go-toml/v2", "github.com/pelletier/go-toml/v2/unstable"},
	"upstream/upstreamtest": {"coffer/jsonrpc", "github.com/santhosh-tekuri/jsonschema/v6"},
	"prefs":                 {"coffer/tick", "github.com/mattn/go-sqlite3", "github.com/fsnotify/fsnotify", "github.com/gofrs/flock"},
	"tick":                  {"golang.org/x/sys/unix"},
	"siblings":              {"golang.org/x/sys/windows"},
	"logfile":               {"github.com/gofrs/flock"},
	"cache":                 {},
	"jsonrpc":               {},
	"testdata/bench":        {"coffer/testdata/bench/toy"},
	"testdata/bench/peer":   {"coffer/testdata/bench/toy"},
	"testdata/bench/toy":    {},
}

// onlyInMain are names of the process that nothing but a main.go may use: all
// else gets its streams and its context handed in.
var onlyInMain = []string{"os.Stdout", "os.Exit", "context.Background"}

func TestLayout(t *testing.T) {
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && name != ".") {
			return fs.SkipDir
		}
		if d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		folder := path.Dir(name)
		allowed, known := mayImport[folder]
		if !known {
			t.Errorf("%s: the table of imports does not have its folder", name)
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		checkImports(t, name, file, allowed)
		if path.Base(name) != "main.go" && !strings.HasPrefix(folder, "upstream/upstreamtest") {
			checkNames(t, name, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkImports(t *testing.T, name string, file *ast.File, allowed []string) {
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(imported, "/")
		standard := !strings.Contains(first, ".") && first != "coffer"
		if !standard && !slices.Contains(allowed, imported) {
			t.Errorf("%s must not import %s", name, imported)
		}
	}
}

func checkNames(t *testing.T, name string, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && slices.Contains(onlyInMain, x.Name+"."+s.Sel.Name) {
				t.Errorf("%s uses %s.%s, which only main.go may", name, x.Name, s.Sel.Name)
			}
		}
		return true
	})
}
