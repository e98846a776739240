package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"coffer/testdata/bench/toy"
)

// httpServer is the toy server of number 0 over streamable HTTP (MCP
// 2025-11-25, basic/transports), stateless, with JSON answers. It prints its
// URL and serves until stdin ends.
func httpServer(stdin io.Reader, stdout io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := toy.New(0)
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		request, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer, wait := server.AppendAnswer(nil, request)
		time.Sleep(wait)
		if answer == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer)
	}))
	fmt.Fprintf(stdout, "http://%s/mcp\n", listener.Addr())
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// httpClient is a client of a server over HTTP, without anything between.
type httpClient struct {
	url    string
	client *http.Client
	buf    bytes.Buffer
}

func newHTTPClient(url string) *httpClient {
	return &httpClient{url: url, client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
}

func (c *httpClient) ask(request []byte) ([]byte, error) { return c.post(request, http.StatusOK) }

func (c *httpClient) tell(notice []byte) error {
	_, err := c.post(notice, http.StatusAccepted)
	return err
}

func (c *httpClient) post(message []byte, want int) ([]byte, error) {
	request, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("MCP-Protocol-Version", "2025-11-25")
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	c.buf.Reset()
	if _, err := c.buf.ReadFrom(response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode != want {
		return nil, fmt.Errorf("%s: %s", c.url, response.Status)
	}
	return bytes.TrimRight(c.buf.Bytes(), "\n"), nil
}

func (c *httpClient) close() error {
	c.client.CloseIdleConnections()
	return nil
}

// startHTTP starts an httpServer in a process and returns its URL.
func startHTTP(self string) (*session, string, error) {
	s, err := startSession([]string{self, httpRole})
	if err != nil {
		return nil, "", err
	}
	url, err := s.line()
	return s, strings.Clone(string(url)), err
}
