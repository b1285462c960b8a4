// Package multicall chooses the program that a binary with several programs runs.
package multicall

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Own is the name of the binary under which the first argument names the component.
const Own = "controlplane"

// Components are the programs of a binary by name. Each returns an exit code.
type Components map[string]func() int

// UsageError says that the name of the component is missing or unknown.
type UsageError struct {
	Name  string   // The given name; empty if no name was given.
	Known []string // The known names, sorted.
}

func (e *UsageError) Error() string {
	wrong := "no component named"
	if e.Name != "" {
		wrong = fmt.Sprintf("unknown component %q", e.Name)
	}
	return fmt.Sprintf("%s: %s\nUsage: %[1]s COMPONENT [FLAG...], or call it through a symlink named after the component\nComponents: %[3]s",
		Own, wrong, strings.Join(e.Known, ", "))
}

// Choose returns the component that argv names, and its arguments, which begin with its own name. The base name of
// argv[0] names the component; if it is [Own], the first argument does. Choose does not modify argv.
//
// It returns a [*UsageError] if there is no such component.
func (c Components) Choose(argv []string) (run func() int, args []string, err error) {
	if len(argv) == 0 {
		return nil, nil, c.usage("")
	}
	args = argv
	name := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	if name == Own {
		if len(argv) == 1 {
			return nil, nil, c.usage("")
		}
		args = argv[1:]
		name = argv[1]
	}
	run, ok := c[name]
	if !ok {
		return nil, nil, c.usage(name)
	}
	return run, args, nil
}

func (c Components) usage(name string) *UsageError {
	return &UsageError{Name: name, Known: slices.Sorted(maps.Keys(c))}
}
