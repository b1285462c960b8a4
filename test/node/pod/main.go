// Command pod is the program of the test containers. Its image contains no other file.
//
//	pod                 waits for a signal to end, like a pause container
//	pod report FILE...  prints its environment and files as JSON, and waits
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// report is what a container sees.
type report struct {
	Env   map[string]string `json:"env"`
	Files map[string]string `json:"files"` // Content by path, without missing files.
}

func main() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	if len(os.Args) > 1 && os.Args[1] == "report" {
		if err := say(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1) //nolint:forbidigo // This is the main function.
		}
	}
	<-told
}

func say(paths []string) error {
	r := report{Env: map[string]string{}, Files: map[string]string{}}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		r.Env[name] = value
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		r.Files[path] = string(text)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%s\n", text)
	return err
}
