//go:build !race

package policy_test

// made is the number of generated objects for each version.
const made = 300
