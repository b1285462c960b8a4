package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"refract.dev/internal/offline/manifest/nearest"
)

// formats are the forms in which a command can print a result; the first is the
// one that it prints if it is not told.
type formats[T any] []struct {
	name  string
	write func(*streams, T) error
}

// toStdout is a format that is all for stdout.
func toStdout[T any](write func(io.Writer, T) error) func(*streams, T) error {
	return func(s *streams, result T) error { return write(s.out, result) }
}

// addFlag adds the flag --output, and completion for it.
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

// find returns the format of this name.
func (f formats[T]) find(name string) (func(*streams, T) error, error) {
	for i := range f {
		if f[i].name == name {
			return f[i].write, nil
		}
	}
	return nil, unknownOutput(name, f.names())
}

// addOutputFlag adds the flag --output for these formats, the first of which is the
// default.
func addOutputFlag(cmd *cobra.Command, output *string, names []string) {
	cmd.Flags().StringVarP(output, "output", "o", names[0], "`format` of what is printed: "+strings.Join(names, ", "))
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)))
}

// unknownOutput is the error of a flag --output whose value is none of those that
// are known.
func unknownOutput(value string, known []string) error {
	hint := "it is one of " + strings.Join(known, ", ")
	if near := nearest.To(value, known); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return withHint(fmt.Errorf("--output: there is no format %q", value), hint)
}
