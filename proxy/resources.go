package proxy

import (
	"regexp"
	"slices"
	"strings"

	"github.com/yosida95/uritemplate/v3"

	"coffer/upstream"
)

// scheme is how one server's resource is addressed whatever others list:
// coffer://<server>/<original URI>, the server percent-encoded, the original
// raw (design §4).
const scheme = "coffer://"

// address returns the coffer:// form of a server's URI or URI template.
func address(server, uri string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	b.WriteString(scheme)
	for i := range len(server) {
		c := server[i]
		if plain(c) || c == '.' || c == '~' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String() + "/" + uri
}

// addressed returns the original URI if uri is the coffer:// form of one of
// the named server's.
func addressed(server, uri string) (original string, ok bool) {
	return strings.CutPrefix(uri, address(server, ""))
}

// owners knows which server each listed URI and template belongs to. It does
// not change.
type owners struct {
	order     []int                               // the servers' indices, config order
	uris      map[string]int                      // listed URI -> the first server in config order that lists it
	templates map[string]int                      // likewise for templates
	lists     map[upstream.Kind][]map[string]bool // per server: what it lists
	hidden    []map[string]bool                   // per server: URIs and templates of its that an earlier server lists too
	schemes   []map[string]bool                   // per server: the schemes of what it lists
	patterns  []templatePattern                   // all templates, most literal characters first, then config order
}

type templatePattern struct {
	server   int
	template string
	literals int
	match    *regexp.Regexp
}

// newOwners reads the listings of resources and templates, one of each for
// each server, nil where unknown.
func newOwners(servers *roster, resources, templates []*upstream.Listing) *owners {
	o := &owners{order: servers.order, uris: map[string]int{}, templates: map[string]int{}, lists: map[upstream.Kind][]map[string]bool{
		upstream.Resources: make([]map[string]bool, servers.size()), upstream.Templates: make([]map[string]bool, servers.size()),
	}}
	o.hidden, o.schemes = make([]map[string]bool, servers.size()), make([]map[string]bool, servers.size())
	for i := range servers.all() {
		o.hidden[i], o.schemes[i] = map[string]bool{}, map[string]bool{}
		o.enter(i, upstream.Resources, resources[i], o.uris)
		o.enter(i, upstream.Templates, templates[i], o.templates)
		if templates[i] != nil {
			for _, item := range templates[i].Items {
				o.addPattern(i, item.Key)
			}
		}
	}
	slices.SortStableFunc(o.patterns, func(a, b templatePattern) int { return b.literals - a.literals })
	return o
}

func (o *owners) enter(server int, k upstream.Kind, l *upstream.Listing, owner map[string]int) {
	own := map[string]bool{}
	o.lists[k][server] = own
	if l == nil {
		return
	}
	for _, item := range l.Items {
		own[item.Key] = true
		if _, taken := owner[item.Key]; taken {
			o.hidden[server][item.Key] = true
		} else {
			owner[item.Key] = server
		}
		if s, _, ok := strings.Cut(item.Key, ":"); ok {
			o.schemes[server][s] = true
		}
	}
}

// addPattern compiles one template (RFC 6570). One that cannot be compiled is
// listed all the same and only matches by its exact text.
func (o *owners) addPattern(server int, template string) {
	t, err := uritemplate.New(template)
	if err != nil {
		return
	}
	literals, inside := 0, false
	for _, c := range template {
		switch {
		case c == '{':
			inside = true
		case c == '}':
			inside = false
		case !inside:
			literals++
		}
	}
	o.patterns = append(o.patterns, templatePattern{server, template, literals, t.Regexp()})
}

// show returns the URI or template under which clients see an item.
func (o *owners) show(spec *upstream.Spec, server int, key string) string {
	if o.hidden[server][key] {
		return address(spec.Name, key)
	}
	return key
}

// matching returns the first template, of one server or of any (-1), that uri
// is an expansion of.
func (o *owners) matching(uri string, server int) (templatePattern, bool) {
	for _, p := range o.patterns {
		if (server < 0 || p.server == server) && p.match.MatchString(uri) {
			return p, true
		}
	}
	return templatePattern{}, false
}

// byScheme returns the first server that listed something of uri's scheme.
func (o *owners) byScheme(uri string) (server int, ok bool) {
	s, _, found := strings.Cut(uri, ":")
	if !found {
		return 0, false
	}
	for _, i := range o.order {
		if o.schemes[i][s] {
			return i, true
		}
	}
	return 0, false
}
