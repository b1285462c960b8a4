//go:build race

package policy_test

// made is the number of generated objects for each version. With the race detector, each object takes ten times as
// long, and sequential code has no races to find.
const made = 25
