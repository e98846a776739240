#!/usr/bin/env bash
# Installs what the tests need, then runs every check. The only network that it
# needs is the package registries, and only while it installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { printf '\n== %s\n' "$*"; }
die() {
	printf 'test.sh: error: %s\n' "$1" >&2
	[ $# -lt 2 ] || printf 'test.sh: hint: %s\n' "$2" >&2
	exit 1
}

step='start'
scratch=''
trap 'rc=$?; rm -rf "$scratch"; [ $rc -eq 0 ] || printf "\ntest.sh: FAILED at: %s\n" "$step" >&2' EXIT

need() { # need COMMAND HINT
	command -v "$1" >/dev/null 2>&1 || die "$1 is not on PATH" "$2"
}

# npm_install DIR brings DIR/node_modules up to DIR's lock file, and does
# nothing when that was done already.
npm_install() {
	local dir=$1 want
	want=$(cat "$dir/package.json" "$dir/package-lock.json" "$dir/.npmrc" | cksum)-$(node --version)
	if [ "$(cat "$dir/.installed" 2>/dev/null)" = "$want" ] && [ -d "$dir/node_modules" ]; then
		echo "$dir: as the lock file says"
		return
	fi
	rm -f "$dir/.installed"
	(cd "$dir" && npm ci --prefer-offline --no-progress --loglevel=error)
	printf '%s\n' "$want" >"$dir/.installed"
}

step='tools'
say 'tools'
need go 'coffer is a Go program: install the Go of go.mod or newer'
need node 'the tests run official npm servers: install Node.js 20 or newer'
need npm 'npm comes with Node.js'
cc=$(go env CC)
need "${cc%% *}" 'SQLite is C: install a C compiler (Debian: apt-get install gcc libc6-dev)'
[ "$(CGO_ENABLED='' go env CGO_ENABLED)" = 1 ] || die 'cgo is off' 'unset CGO_ENABLED: SQLite and the race detector need it'
[ "$(node -p 'process.versions.node.split(".")[0] >= 20')" = true ] || die "Node.js $(node --version) is too old" 'install Node.js 20 or newer'
# The real build for Windows is for where Debian's package is to be had; go vet
# looks at Windows everywhere.
mingw=x86_64-w64-mingw32-gcc
if ! command -v "$mingw" >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	{ timeout 90 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 180 apt-get install -y -qq --no-install-recommends gcc-mingw-w64-x86-64; } ||
		echo 'gcc-mingw-w64-x86-64 is not to be had'
fi
printf '%s, %s, node %s, npm %s\n' "$(go env GOVERSION)" "$cc" "$(node --version)" "$(npm --version)"

# Folders called testdata are not part of ./...
packages=(./... ./testdata/bench/...)

step='go mod download'
say "$step"
go mod download

step='npm ci'
say "$step"
npm_install testdata/npm
npm_install testdata/conformance

step='gofmt -l'
say "$step"
unformatted=$(find . -name node_modules -prune -o -name '*.go' -print0 | xargs -0 gofmt -l)
[ -z "$unformatted" ] || die "not formatted: ${unformatted//$'\n'/ }" 'gofmt -w .'

step='go mod tidy -diff'
say "$step"
go mod tidy -diff

step='go vet'
say "$step"
go vet "${packages[@]}"

step='go vet for Windows and macOS'
say "$step"
# Without a C compiler for the system, SQLite's driver lacks
# its error type. A copy of the driver that is that type, less what is C in it,
# and the driver's own stub lets everything of ours be type-checked.
driver=$(go list -m -f '{{.Dir}}' github.com/mattn/go-sqlite3)
scratch=$(mktemp -d)
sed -e '/^\/\*$/,/^import "C"$/d' -e 's/C\.GoString(.*)/""/' -e 's/C\.int/int/g' "$driver/error.go" >"$scratch/error.go"
cp "$driver/static_mock.go" "$scratch"
cp "$driver/go.mod" "$scratch/go.mod"
cp go.mod "$scratch/coffer.mod"
cp go.sum "$scratch/coffer.sum"
go mod edit -replace "github.com/mattn/go-sqlite3=$scratch" "$scratch/coffer.mod"
for os in windows darwin; do
	GOOS=$os CGO_ENABLED=0 go vet -modfile "$scratch/coffer.mod" "${packages[@]}"
done

step='go build for Windows'
say "$step"
if command -v "$mingw" >/dev/null 2>&1; then
	CGO_ENABLED=1 GOOS=windows GOARCH=amd64 CC=$mingw go build -o "$scratch/coffer.exe" .
else
	echo "left out: no $mingw (Debian: apt-get install gcc-mingw-w64-x86-64)"
fi

step='staticcheck'
say "$step"
go tool staticcheck "${packages[@]}"

step='go test'
say "$step"
go test -race -shuffle=on -timeout 20m "$@" "${packages[@]}"

say 'passed: everything'
