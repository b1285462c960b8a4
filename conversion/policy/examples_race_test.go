//go:build race

package policy_test

// made is the number of generated objects for each version. With the race detector each object takes ten times as long,
// and this sequential code has no data races.
const made = 25
