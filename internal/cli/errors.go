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

// errFound is the error of a command that has shown findings: differences, violations or failed objects. The exit code
// is 1.
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

// withHint returns err with advice: one sentence without an end mark, based on the actual input. An empty hint adds
// nothing.
func withHint(err error, hint string) error {
	if hint == "" {
		return err
	}
	return &hinted{error: err, hint: hint}
}

// reportEnd writes the error that a command ends with. After an interrupt it also writes the progress of the command.
func reportEnd(w io.Writer, s *streams, err error) {
	state, remedy := s.standing()
	if state == "" || !errors.Is(err, context.Canceled) {
		report(w, err)
		return
	}
	fmt.Fprintf(w, "error: interrupted, and %s\nhint: %s\n", state, remedy)
}

// report writes an error for the user: a line for each joined error, and the first hint among them.
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

// split returns the errors that were joined.
func split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error }) // Only the outermost level: an error that wraps joined errors adds context.
	if !ok {
		return []error{err}
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		errs = append(errs, split(e)...)
	}
	return errs
}

// explainUnknownCommand adds the nearest command to the error of a command with subcommands.
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

// wanted describes the accepted values of flags by type.
var wanted = map[string]string{
	"duration": "a duration such as 5s or 2m", "bool": "true or false", "float64": "a number",
	"int": "a whole number", "int32": "a whole number", "int64": "a whole number",
	"uint": "a whole number of 0 or more", "uint32": "a whole number of 0 or more", "uint64": "a whole number of 0 or more",
}

// insteadOf has advice for flags of kubectl that refract lacks, by name.
var insteadOf = map[string]string{
	"R": recursion, "recursive": recursion,
	"k": kustomization, "kustomize": kustomization,
}

const (
	recursion     = "leave it out: -f reads folders recursively"
	kustomization = "build it and read the result: kubectl kustomize DIRECTORY | refract COMMAND -f -"
)

// explainFlagError adds the accepted values or the nearest flag to an error of parsing the flags.
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

// nearestFlag returns the flag for a mistyped or shortened name, such as filename for file, or kubeconfig for
// hub-kubeconfig; empty if no flag or several match.
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
