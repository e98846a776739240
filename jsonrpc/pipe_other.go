//go:build !linux

package jsonrpc

// WidenPipe does nothing: only on Linux can the size of a pipe be changed.
func WidenPipe(any) {}
