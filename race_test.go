//go:build race

package main

// raceFactor is how many times the memory the race detector may take.
const raceFactor = 10
