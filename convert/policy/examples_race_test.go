//go:build race

package policy_test

// made is how many objects are made up for each version. The race detector makes each take
// ten times as long, and finds nothing in what runs one after the other.
const made = 25
