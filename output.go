package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"coffer/prefs"
	"coffer/proxy"
	"coffer/upstream"
)

// item is one capability in a document that coffer prints as JSON. Its member
// names are a contract.
type item struct {
	Server string     `json:"server"`
	Type   prefs.Type `json:"type"`
	Key    string     `json:"key"`
	// Name is what clients see; nil if the config does not have the server.
	Name        *string `json:"name"`
	Enabled     bool    `json:"enabled"`
	FirstSeenAt moment  `json:"first_seen_at"`
	LastSeenAt  moment  `json:"last_seen_at"`
	SetAt       moment  `json:"set_at"` // when a person chose enabled
	// Live says that the server listed it just now.
	Live bool `json:"live"`
}

// naming says what clients call a capability.
type naming struct {
	config *upstream.Config
	names  *proxy.Names
}

// naming works the names out from what the servers listed last.
func (p *program) naming(ctx context.Context, config *upstream.Config, store *prefs.Store) (*naming, error) {
	rows, err := store.Rows(ctx, prefs.Filter{})
	if err != nil {
		return nil, err
	}
	return &naming{config: config, names: proxy.NewNames(config, lastListed(rows))}, nil
}

// lastListed returns what the rows tell of what a server listed last.
func lastListed(rows []prefs.Row) func(server string, k upstream.Kind) []string {
	type list struct {
		server string
		kind   prefs.Type
	}
	// What stood in the newest list was seen at the same moment, the newest.
	newest := map[list]time.Time{}
	for _, r := range rows {
		if at := (list{r.Server, r.Type}); r.LastSeen.After(newest[at]) {
			newest[at] = r.LastSeen
		}
	}
	keys := map[list][]string{}
	for _, r := range rows {
		if at := (list{r.Server, r.Type}); !r.LastSeen.IsZero() && r.LastSeen.Equal(newest[at]) {
			keys[at] = append(keys[at], r.Key.Key)
		}
	}
	return func(server string, k upstream.Kind) []string { return keys[list{server, typeOf[k]}] }
}

// of returns what clients call the capability, nil if the config does not have
// its server.
func (n *naming) of(k prefs.Key) *string {
	spec := specOf(n.config, k.Server)
	if spec == nil {
		return nil
	}
	name := n.names.Of(spec, kindsOf([]prefs.Type{k.Type})[0], k.Key)
	return &name
}

// item describes a stored preference.
func (n *naming) item(r prefs.Row) item {
	return item{
		Server: r.Server, Type: r.Type, Key: r.Key.Key, Name: n.of(r.Key), Enabled: r.Enabled,
		FirstSeenAt: moment(r.FirstSeen), LastSeenAt: moment(r.LastSeen), SetAt: moment(r.SetAt),
	}
}

// items describes stored preferences; never nil, so that JSON has an array.
func (n *naming) items(rows []prefs.Row) []item {
	items := make([]item, len(rows))
	for i, r := range rows {
		items[i] = n.item(r)
	}
	return items
}

// specOf returns the server with that name, or nil.
func specOf(config *upstream.Config, name string) *upstream.Spec {
	for i := range config.Servers {
		if config.Servers[i].Name == name {
			return &config.Servers[i]
		}
	}
	return nil
}

// findServer returns the server with that name, or an error that names those that
// there are.
func findServer(config *upstream.Config, name string) (*upstream.Spec, error) {
	if spec := specOf(config, name); spec != nil {
		return spec, nil
	}
	if config.Missing {
		return nil, failf(exitNotFound, missingConfigHint, "no server %q: there is no config file %s", name, config.Path)
	}
	var names []string
	for _, spec := range config.Servers {
		names = append(names, spec.Name)
	}
	return nil, noServer(name, config.Path, names)
}

// noServer is the error of a server that the config at path does not have; names
// are those that it has.
func noServer(name, path string, names []string) error {
	hint := "the config has no servers"
	if len(names) > 0 {
		hint = "the config has " + strings.Join(names, ", ")
	}
	return failf(exitNotFound, hint, "no server %q in %s", name, path)
}

// moment is a time in a JSON document: RFC 3339 in UTC with milliseconds, or
// null for the zero time.
type moment time.Time

const momentLayout = "2006-01-02T15:04:05.000Z"

// MarshalJSON implements json.Marshaler.
func (m moment) MarshalJSON() ([]byte, error) {
	if time.Time(m).IsZero() {
		return []byte("null"), nil
	}
	return []byte(time.Time(m).UTC().Format(`"` + momentLayout + `"`)), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *moment) UnmarshalJSON(text []byte) error {
	var t *time.Time
	if err := json.Unmarshal(text, &t); err != nil {
		return fmt.Errorf("%s is not a time like %s", text, momentLayout)
	}
	*m = moment{}
	if t != nil {
		*m = moment(t.UTC())
	}
	return nil
}

// short is a time in a table, in the reader's own zone.
func (m moment) short() string {
	if time.Time(m).IsZero() {
		return "never"
	}
	return time.Time(m).Local().Format("2006-01-02 15:04")
}

// printJSON prints one document.
func (p *program) printJSON(document any) error {
	e := json.NewEncoder(p.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(document)
}

// say prints one line for a person.
func (p *program) say(format string, args ...any) {
	fmt.Fprintf(p.out, "%s\n", printable(fmt.Sprintf(format, args...)))
}

// table prints rows in columns behind indent, the first row being the heads.
func (p *program) table(indent string, rows [][]string) {
	width := 0 // no limit: what a script reads is whole
	if f, ok := p.stdout.(*os.File); ok {
		width, _, _ = term.GetSize(int(f.Fd())) // 0 where it is no terminal
	}
	writeTable(p.out, indent, width, rows)
}

const (
	// columnGap is the space between two columns.
	columnGap = "  "
	// leastColumn is what a column is not cut below, in characters.
	leastColumn = 8
)

// writeTable prints rows in columns behind indent. Where a line would be longer than
// width characters, cells of the widest columns are cut; 0: nothing is.
func writeTable(to io.Writer, indent string, width int, rows [][]string) {
	var widths []int // in characters, as good as columns for most names
	for _, row := range rows {
		for i, cell := range row {
			row[i] = strings.NewReplacer("\t", `\t`, "\n", `\n`).Replace(printable(cell))
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	if width > 0 {
		narrow(widths, width-len(indent)-len(columnGap)*(len(widths)-1))
	}
	for _, row := range rows {
		line := indent
		for i, cell := range row {
			line += fmt.Sprintf("%-*s", widths[i], shortened(cell, widths[i])) + columnGap
		}
		fmt.Fprintln(to, strings.TrimRight(line, " "))
	}
}

// narrow takes from the widest of widths until they add up to no more than sum, or
// none has anything to give.
func narrow(widths []int, sum int) {
	total := 0
	for _, w := range widths {
		total += w
	}
	for ; total > sum; total-- {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= leastColumn {
			return
		}
		widths[widest]--
	}
}

// shortened is text in at most width characters.
func shortened(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// printable replaces what could steer a terminal: names, messages and texts
// come from servers that nobody vouches for.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, s)
}

// onOff is the word for a flag.
func onOff(enabled bool) string {
	if enabled {
		return "on"
	}
	return "off"
}

// count is a number and its noun: 1 tool, 2 tools, no tools.
func count(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun + "s"
	case 1:
		return "1 " + noun
	default:
		return fmt.Sprintf("%d %ss", n, noun)
	}
}

// nounOf is a type in prose.
func nounOf(t prefs.Type) string { return strings.ReplaceAll(string(t), "_", " ") }

// shellWord writes s so that a shell reads it as one word.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-./:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// setCommand is the command that switches a capability.
func setCommand(k prefs.Key, enabled bool) string {
	words := []string{"coffer prefs set", shellWord(k.Server), string(k.Type), shellWord(k.Key), onOff(enabled)}
	if strings.HasPrefix(k.Server, "-") || strings.HasPrefix(k.Key, "-") {
		words[0] += " --"
	}
	return strings.Join(words, " ")
}
