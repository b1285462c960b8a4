package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"refract.dev/internal/offline/manifest/nearest"
)

// Exit codes.
const (
	exitOK    = 0 // There is nothing to say.
	exitFound = 1 // There are differences, violations or objects that failed.
	exitError = 2 // The command could not do what it was asked for.
)

// errFound ends a command that did its work and found something, which it has
// shown already: differences, violations, objects that failed. The exit code is
// then 1.
var errFound = errors.New("something was found")

// exitCode decides on the exit code of a command that returned err.
func exitCode(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFound):
		return exitFound
	default:
		return exitError
	}
}

// hinted is an error with advice on what to do.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

// withHint returns err with advice, one sentence without an end mark, that comes
// from having looked. An empty hint is none.
func withHint(err error, hint string) error {
	if hint == "" {
		return err
	}
	return &hinted{error: err, hint: hint}
}

// reportEnd writes the error that a command ends with, and how far the command has come if it was interrupted.
func reportEnd(w io.Writer, s *streams, err error) {
	state, remedy := s.standing()
	if state == "" || !errors.Is(err, context.Canceled) {
		report(w, err)
		return
	}
	fmt.Fprintf(w, "error: interrupted, and %s\nhint: %s\n", state, remedy)
}

// report writes an error for people: a line for each of the errors that were
// joined, and the first hint that one of them has.
func report(w io.Writer, err error) {
	hint := ""
	for _, e := range split(err) {
		if errors.Is(e, errFound) {
			continue
		}
		if errors.Is(e, context.Canceled) {
			fmt.Fprintln(w, "error: interrupted")
			continue
		}
		fmt.Fprintf(w, "error: %s\n", e)
		var h *hinted
		if hint == "" && errors.As(e, &h) {
			hint = h.hint
			fmt.Fprintf(w, "hint: %s\n", hint)
		}
	}
}

// split takes joined errors apart.
func split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error }) // Only the outermost: what wraps another adds context.
	if !ok {
		return []error{err}
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		errs = append(errs, split(e)...)
	}
	return errs
}

// explainUnknownCommand adds the nearest command to an error of a command that
// has others below it.
func explainUnknownCommand(cmd *cobra.Command, err error) error {
	var name string
	if n, _ := fmt.Sscanf(err.Error(), "unknown command %q", &name); n != 1 {
		return err
	}
	return unknownCommand(cmd, name)
}

func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			names = append(names, c.Name())
		}
	}
	hint := cmd.CommandPath() + " --help lists the commands"
	if near := nearest.To(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return withHint(fmt.Errorf("%s has no command %q", cmd.CommandPath(), name), hint)
}

// wanted says what flags take, by the types of their values.
var wanted = map[string]string{
	"duration": "a duration such as 5s or 2m", "bool": "true or false", "float64": "a number",
	"int": "a whole number", "int32": "a whole number", "int64": "a whole number",
	"uint": "a whole number from 0 on", "uint32": "a whole number from 0 on", "uint64": "a whole number from 0 on",
}

// insteadOf says what takes the place of flags of kubectl, by their names.
var insteadOf = map[string]string{
	"R": recursion, "recursive": recursion,
	"k": kustomization, "kustomize": kustomization,
}

const (
	recursion     = "leave it out: -f reads a folder with the folders in it"
	kustomization = "build it and read the result: kubectl kustomize DIRECTORY | refract COMMAND -f -"
)

// explainFlagError says what a flag takes, or adds the nearest one, to an error of parsing
// the flags.
func explainFlagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) && wanted[invalid.GetFlag().Value.Type()] != "" {
		f := invalid.GetFlag()
		return fmt.Errorf("--%s: want %s, got %q", f.Name, wanted[f.Value.Type()], invalid.GetValue())
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	hint := cmd.CommandPath() + " --help lists the flags"
	if instead := insteadOf[unknown.GetSpecifiedName()]; instead != "" && cmd.Flags().Lookup("filename") != nil {
		return withHint(err, instead)
	}
	if near := nearestFlag(unknown.GetSpecifiedName(), names); near != "" && unknown.GetSpecifiedShortnames() == "" {
		hint = fmt.Sprintf("did you mean --%s?", near)
	}
	return withHint(err, hint)
}

// nearestFlag returns the flag that somebody who mistyped or shortened one may have meant, as
// file for filename, or hub-kubeconfig for kubeconfig; empty if there is none, or more than one.
func nearestFlag(name string, names []string) string {
	if near := nearest.To(name, names); near != "" {
		return near
	}
	like := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, name) && !strings.HasSuffix(name, "-"+n) })
	if len(like) != 1 {
		return ""
	}
	return like[0]
}

// noArgs refuses positional arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help says what it takes"
	switch {
	case cmd.Flags().Lookup("filename") != nil:
		hint = fmt.Sprintf("did you mean -f %s?", args[0])
	case cmd.Flags().Lookup("crd") != nil && !cmd.Flags().Changed("crd"):
		hint = fmt.Sprintf("did you mean --crd %s?", args[0])
	}
	return withHint(fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), strings.Join(args, " ")), hint)
}
