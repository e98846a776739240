package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode"

	"coffer/jsonrpc"
)

const (
	// maxRedirects is how many redirects of one request are followed.
	maxRedirects = 5
	// excerptSource and maxExcerpt bound what is read and what is quoted of a
	// body that is no JSON-RPC, in bytes and runes.
	excerptSource = 16 << 10
	maxExcerpt    = 200
	// errorBodyWait is how long the body of a refusal is waited for.
	errorBodyWait = 5 * time.Second
)

// notSent is the reason why a request never reached the server.
type notSent struct{ error }

// Unwrap makes it a jsonrpc.ErrNotSent.
func (e notSent) Unwrap() []error { return []error{jsonrpc.ErrNotSent, e.error} }

// broken returns what a request without a response ends with. An *Error stands
// as it is; to other errors conn.go adds that the request may have run.
func (r *remote) broken(err error, sent bool) error {
	if _, ok := errors.AsType[*HintError](err); ok { // of checkRedirect
		return unavailable(r.conn.Name(), err)
	}
	if sent {
		return closedEarly(err)
	}
	return unavailable(r.conn.Name(), notSent{unreached(err)})
}

// closedEarly says in words what io.EOF means where an answer was due.
func closedEarly(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the server broke off in the middle of its answer")
	case errors.Is(err, io.EOF):
		return errors.New("the server closed the connection without an answer")
	}
	return err
}

// unreached adds a hint to the usual reasons why there is no connection.
func unreached(err error) error {
	hint := ""
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		hint = "check the host in the url of this server in the config"
	} else if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		hint = "have this machine trust the server's certificate (SSL_CERT_FILE names a file of further ones)"
	} else if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		hint = "the server does not speak TLS there: write http:// in its url, or correct the port"
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		hint = "start that server, or correct its url in the config"
	}
	if hint == "" {
		return err
	}
	return &HintError{Err: err, Hint: hint}
}

// checkRedirect lets a request be redirected within its origin only, and only
// as what it is: headers and bodies are meant for one server, and a POST that
// became a GET would say nothing. http to https is another origin too, since
// what came first went in the clear: the config should be corrected.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	to := (&url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: req.URL.Path}).String()
	switch {
	case origin(req.URL) != origin(first.URL):
		return &HintError{
			Err:  fmt.Errorf("the server redirects to another origin, %s", to),
			Hint: "if that is right, set the url of this server in the config to it",
		}
	case req.Method != first.Method:
		return &HintError{
			Err:  fmt.Errorf("the server redirects a %s to %s as a %s", first.Method, to, req.Method),
			Hint: "set the url of this server in the config to the address that takes MCP messages",
		}
	case len(via) > maxRedirects:
		return &HintError{Err: fmt.Errorf("more than %d redirects, last to %s", maxRedirects, to), Hint: "correct the url of this server in the config"}
	}
	return nil
}

// origin returns the scheme, host and port of u (RFC 6454).
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// mediaType returns the type of a body, in lower case and without parameters.
func mediaType(resp *http.Response) string {
	t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return t
}

// statusError says what an HTTP status other than 2xx means. text is the body,
// which is no answer.
func (r *remote) statusError(resp *http.Response, text []byte) error {
	err := errors.New(r.statusText(resp, text))
	hint := ""
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		hint = `set headers of this server in the config, for instance "headers": {"Authorization": "Bearer …"}`
		if scheme, _, _ := strings.Cut(resp.Header.Get("WWW-Authenticate"), " "); scheme != "" {
			err = fmt.Errorf("%w (it asks for %s)", err, r.clean(scheme))
		}
	case http.StatusForbidden:
		hint = "the server knows the request and refuses it: check what the headers of this server in the config give access to"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		hint = "check the url of this server in the config"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after := resp.Header.Get("Retry-After"); after != "" {
			err = fmt.Errorf("%w (Retry-After: %s)", err, r.clean(after))
		}
	}
	if hint != "" {
		err = &HintError{Err: err, Hint: hint}
	}
	if resp.StatusCode >= 500 {
		return err // it may have run
	}
	return unavailable(r.conn.Name(), err)
}

// statusText returns the status line and an excerpt of the body, for people.
func (r *remote) statusText(resp *http.Response, text []byte) string {
	line := fmt.Sprintf("HTTP %d", resp.StatusCode)
	if name := http.StatusText(resp.StatusCode); name != "" {
		line += " " + name
	}
	if words := r.excerpt(text); words != "" {
		line += ": " + words
	}
	return line
}

var (
	htmlHidden = regexp.MustCompile(`(?is)<(script|style|head)\b.*?</(script|style|head)>`)
	htmlTitle  = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)
	htmlTag    = regexp.MustCompile(`<[^>]*>`)
)

// excerpt returns what a body that is no answer says, for people: the message
// in a JSON object, the title or text of a page, the first words of a text.
func (r *remote) excerpt(text []byte) string {
	text = text[:min(len(text), excerptSource)]
	for _, path := range [][]string{{"error", "message"}, {"message"}, {"error_description"}, {"detail"}, {"error"}, {"title"}} {
		if words, ok := jsonrpc.TextAt(text, path...); ok && words != "" {
			return r.clean(words)
		}
	}
	page := string(text)
	if title := htmlTitle.FindStringSubmatch(page); title != nil && strings.TrimSpace(title[1]) != "" {
		return r.clean(title[1])
	}
	if strings.HasPrefix(strings.TrimSpace(page), "<") {
		page = htmlTag.ReplaceAllString(htmlHidden.ReplaceAllString(page, " "), " ")
	}
	return r.clean(page)
}

// clean makes somebody else's text fit for one line of a message, without the
// values of the config's headers should the server repeat them.
func (r *remote) clean(text string) string {
	const shortSecret = 6 // a shorter value is a flag, and may be part of any word
	for _, value := range r.conn.server.spec.Headers {
		words := strings.Fields(value)
		if len(words) > 0 {
			words = append(words, value)
		}
		for _, secret := range words {
			if len(secret) > shortSecret {
				text = strings.ReplaceAll(text, secret, "***")
			}
		}
	}
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, " "))
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxExcerpt {
		text = string(runes[:maxExcerpt]) + "…"
	}
	return text
}
