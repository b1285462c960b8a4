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

	"refract.dev/fleet/offline/manifest/nearest"
)

// Exit codes.
const (
	exitOK    = 0 // No findings.
	exitFound = 1 // Differences, violations or failed objects.
	exitError = 2 // The command failed.
)

// errFound is the error of a command that has reported findings: differences, violations or failed objects. It leads to
// exit code 1.
var errFound = errors.New("something was found")

// exitCode returns the exit code of a command that returned err.
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

// hinted is an error with advice.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

// withHint adds advice to an error: one sentence, without a period, about the actual input. If hint is empty, it
// returns err.
func withHint(err error, hint string) error {
	if hint == "" {
		return err
	}
	return &hinted{error: err, hint: hint}
}

// reportEnd writes the error with which a command ends. After an interrupt it also writes the progress of the command.
func reportEnd(w io.Writer, s *streams, err error) {
	state, remedy := s.standing()
	if state == "" || !errors.Is(err, context.Canceled) {
		report(w, err)
		return
	}
	fmt.Fprintf(w, "error: interrupted, and %s\nhint: %s\n", state, remedy)
}

// report writes an error for the user. Each of several joined errors gets its own line. Only the first hint is written.
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

// split returns the individual errors of a joined error.
func split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error }) // An error that wraps a joined error is not split, because it adds context.
	if !ok {
		return []error{err}
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		errs = append(errs, split(e)...)
	}
	return errs
}

// explainUnknownCommand adds the command with the most similar name to the error about an unknown subcommand.
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

// wanted describes the accepted values of a flag, by the type of the flag.
var wanted = map[string]string{
	"duration": "a duration such as 5s or 2m", "bool": "true or false", "float64": "a number",
	"int": "a whole number", "int32": "a whole number", "int64": "a whole number",
	"uint": "a whole number of 0 or more", "uint32": "a whole number of 0 or more", "uint64": "a whole number of 0 or more",
}

// insteadOf has advice about flags that kubectl has and refract does not have.
var insteadOf = map[string]string{
	"R": recursion, "recursive": recursion,
	"k": kustomization, "kustomize": kustomization,
}

const (
	recursion     = "leave it out: -f reads folders recursively"
	kustomization = "build it and read the result: kubectl kustomize DIRECTORY | refract COMMAND -f -"
)

// explainFlagError improves an error about flags: it adds the accepted values, or the flag with the most similar name.
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

// nearestFlag returns the flag that was probably meant by a mistyped or shortened name. For example, filename means
// file, and kubeconfig means hub-kubeconfig. It returns "" if no flag or several flags are possible.
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

// noArgs rejects positional arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help shows the usage"
	switch {
	case cmd.Flags().Lookup("filename") != nil:
		hint = fmt.Sprintf("did you mean -f %s?", args[0])
	case cmd.Flags().Lookup("crd") != nil && !cmd.Flags().Changed("crd"):
		hint = fmt.Sprintf("did you mean --crd %s?", args[0])
	}
	return withHint(fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), strings.Join(args, " ")), hint)
}
