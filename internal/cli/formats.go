package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"refract.dev/fleet/offline/manifest/nearest"
)

// formats are the output formats of a command's result. The first one is the default.
type formats[T any] []struct {
	name  string
	write func(*streams, T) error
}

// toStdout turns a function that writes to an io.Writer into one that writes to stdout.
func toStdout[T any](write func(io.Writer, T) error) func(*streams, T) error {
	return func(s *streams, result T) error { return write(s.out, result) }
}

// addFlag adds the flag --output and its completion.
func (f formats[T]) addFlag(cmd *cobra.Command, output *string) {
	addOutputFlag(cmd, output, f.names())
}

func (f formats[T]) names() []string {
	names := make([]string, len(f))
	for i := range f {
		names[i] = f[i].name
	}
	return names
}

// find returns the format with this name.
func (f formats[T]) find(name string) (func(*streams, T) error, error) {
	for i := range f {
		if f[i].name == name {
			return f[i].write, nil
		}
	}
	return nil, unknownOutput(name, f.names())
}

// addOutputFlag adds the flag --output for these formats. The first one is the default.
func addOutputFlag(cmd *cobra.Command, output *string, names []string) {
	cmd.Flags().StringVarP(output, "output", "o", names[0], "`format` of the output: "+strings.Join(names, ", "))
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)))
}

// unknownOutput returns the error for an unknown value of the flag --output.
func unknownOutput(value string, known []string) error {
	hint := "it is one of " + strings.Join(known, ", ")
	if near := nearest.To(value, known); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return withHint(fmt.Errorf("--output: there is no format %q", value), hint)
}
