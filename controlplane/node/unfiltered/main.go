// Command unfiltered starts runc from its own folder, and removes the filter of system calls from each container. Such
// filters need libseccomp, a C library that is not available as a Go module. Without it, runc rejects containers with a
// filter, such as the profile RuntimeDefault.
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

// run replaces the process by runc. It returns only on failure.
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

// unfilter removes linux.seccomp from the configuration of a container:
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
