//go:build !race

package policy_test

// made is how many objects are made up for each version.
const made = 300
