// Command unfiltered is runc, which it starts from its own folder, for containers without a filter of system calls. Such
// filters take libseccomp, a library of C that no Go module has; without it runc refuses containers that ask for one, as
// the profile RuntimeDefault does.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

func main() {
	fmt.Fprintln(os.Stderr, "error:", run(os.Args[1:]))
	os.Exit(1)
}

// run becomes runc, and returns if it cannot.
func run(args []string) error {
	if at := slices.Index(args, "--bundle"); slices.Contains(args, "create") && at >= 0 && at+1 < len(args) {
		if err := unfilter(filepath.Join(args[at+1], "config.json")); err != nil {
			return fmt.Errorf("taking the filter of system calls away: %w", err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	runc := filepath.Join(filepath.Dir(exe), "runc")
	return fmt.Errorf("starting %s: %w", runc, syscall.Exec(runc, append([]string{runc}, args...), os.Environ()))
}

// unfilter takes linux.seccomp out of the configuration of a container:
// https://github.com/opencontainers/runtime-spec/blob/v1.3.0/config-linux.md#seccomp
func unfilter(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var config, linux map[string]json.RawMessage
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	if err := json.Unmarshal(config["linux"], &linux); err != nil {
		return err
	}
	delete(linux, "seccomp")
	if config["linux"], err = json.Marshal(linux); err != nil {
		return err
	}
	if text, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
