package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"refract.dev/conversion/migration"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/internal/output"
)

// crdMigrateOptions are the flags of crd migrate.
type crdMigrateOptions struct {
	cluster clusterFlags
	to      string
	rate    float64
	settle  time.Duration
	dryRun  bool
	yes     bool
	output  string
}

func newCRDMigrateCommand(s *streams) *cobra.Command {
	o := &crdMigrateOptions{}
	cmd := &cobra.Command{
		Use:   "migrate NAME --to VERSION",
		Short: "Store all objects of a CRD in one version",
		Long: `Store all objects of a CustomResourceDefinition in one version, so that the others
can be removed from it. VERSION must already be the storage version: older objects
remain stored in another version until their next write.

First every object is read in VERSION. If an object cannot be converted, the command
reports it and writes nothing. Then each object is written back unchanged, which changes
neither its content nor its generation, at most --rate of them per second. Other clients
may create, change and delete objects meanwhile: their writes are kept, and the command
checks objects again until all are stored in VERSION. At the end it sets
status.storedVersions of the definition to VERSION alone.

The command can be interrupted at any time. The next run continues from the position in
the annotation refract.dev/migration of the definition.

With --dry-run all writes are dry runs on the API server.

The exit code is 1 if objects cannot be read or written, and 2 if the migration
failed for another reason.`,
		Example: `  refract crd migrate pizzas.restaurant.example.com --to v1beta1 --dry-run
  refract crd migrate pizzas.restaurant.example.com --to v1beta1 --rate 20 --yes
  refract crd migrate pizzas.restaurant.example.com --to v1beta1 --context prod -o json --yes`,
		Args: oneName("CustomResourceDefinition"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), s, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "`version` to store all objects in; required")
	f.Float64Var(&o.rate, "rate", 100, "maximum `number` of writes per second; 0 for no limit")
	f.DurationVar(&o.settle, "settle", migration.DefaultSettle, "`time` that the API servers must have stored in VERSION before the first write")
	f.BoolVar(&o.dryRun, "dry-run", false, "write nothing, and report failures")
	f.BoolVar(&o.yes, "yes", false, "do not ask for confirmation")
	migrationOutputs.addFlag(cmd, &o.output)
	o.cluster.addClusterFlags(cmd, "cluster")
	for _, name := range []string{"rate", "settle"} {
		must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	must(cmd.RegisterFlagCompletionFunc("to", o.completeVersion))
	cmd.ValidArgsFunction = o.completeCRD
	return cmd
}

var migrationOutputs = formats[*migration.Result]{
	{"text", toStdout(migration.WriteText)},
	{"json", toStdout(migration.WriteJSON)},
}

func (o *crdMigrateOptions) run(ctx context.Context, s *streams, name string) error {
	write, err := migrationOutputs.find(o.output)
	if err != nil {
		return err
	}
	switch {
	case o.to == "":
		return withHint(errors.New("--to: no version given"), "it is the version whose storage is true in the definition")
	case o.rate < 0:
		return fmt.Errorf("--rate: want 0 or more, got %g", o.rate)
	case o.settle < 0:
		return fmt.Errorf("--settle: want 0s or more, got %s", o.settle)
	}
	cfg, _, err := reach(ctx, "cluster", &o.cluster)
	if err != nil {
		return err
	}
	shown := newMigrationProgress(s.err)
	result, err := migration.Run(ctx, migration.Options{
		Config: cfg, Name: name, To: o.to, Rate: o.rate, DryRun: o.dryRun, Settle: o.settle, Progress: shown.show,
		Confirm: func(p *migration.Plan) (bool, error) {
			shown.end()
			o.plan(s.err, p)
			if o.yes {
				return true, nil
			}
			return confirm(s, "Migrate them?")
		},
	})
	shown.end()
	if err != nil {
		return o.explain(ctx, name, err)
	}
	if err := write(s, result); err != nil {
		return err
	}
	if !result.Well() {
		return errFound
	}
	return nil
}

// plan writes what the migration will do.
func (o *crdMigrateOptions) plan(w io.Writer, p *migration.Plan) {
	fmt.Fprintf(w, "%s: %s, stored in %s, to be stored in %s only",
		p.Name, output.Count(p.Objects, "object", "objects"), strings.Join(p.Stored, ", "), p.To)
	if o.rate > 0 && float64(p.Objects) > o.rate {
		fmt.Fprintf(w, "; at %g per second this takes %s or more", o.rate, time.Duration(float64(p.Objects)/o.rate*float64(time.Second)).Round(time.Second))
	}
	fmt.Fprintln(w)
	switch {
	case p.After != "":
		fmt.Fprintf(w, "continuing an interrupted run after %s\n", p.After)
	case p.Continuing:
		fmt.Fprintln(w, "continuing an interrupted run at the first object")
	}
}

// explain adds advice to an error.
func (o *crdMigrateOptions) explain(ctx context.Context, name string, err error) error {
	switch {
	case errors.Is(err, migration.ErrNoDefinition):
		hint := "kubectl get crds lists them"
		if near := nearest.To(name, o.names(ctx)); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		return withHint(err, hint)
	case errors.Is(err, migration.ErrNotStorage):
		return withHint(err, fmt.Sprintf("in spec.versions of its manifest set storage to true for %s and to false for the other, and apply it", o.to))
	case errors.Is(err, migration.ErrNotServed):
		return withHint(err, fmt.Sprintf("in spec.versions of its manifest set served to true for %s, and apply it", o.to))
	case errors.Is(err, migration.ErrChanged), errors.Is(err, migration.ErrUnsettled):
		return withHint(err, "repeat the command: objects that are stored in the version stay so")
	case errors.Is(err, migration.ErrNotTakenUp):
		return withHint(err, "an API server may be cut off from its etcd, or be older than the change: check each API server")
	default:
		return err
	}
}

// Shell completion with data from the cluster.

func (o *crdMigrateOptions) definitions(ctx context.Context) []apiextensionsv1.CustomResourceDefinition {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cfg, _, err := reach(ctx, "cluster", &o.cluster)
	if err != nil {
		return nil
	}
	c, err := watchingClient(cfg)
	all := &apiextensionsv1.CustomResourceDefinitionList{}
	if err != nil || c.List(ctx, all) != nil {
		return nil
	}
	return all.Items
}

func (o *crdMigrateOptions) names(ctx context.Context) []string {
	var names []string
	for _, crd := range o.definitions(ctx) {
		names = append(names, crd.Name)
	}
	return names
}

func (o *crdMigrateOptions) completeCRD(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
}

func (o *crdMigrateOptions) completeVersion(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var versions []cobra.Completion
	for _, crd := range o.definitions(cmd.Context()) {
		if len(args) > 0 && crd.Name != args[0] {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Storage && v.Served && !slices.Contains(versions, v.Name) {
				versions = append(versions, v.Name)
			}
		}
	}
	return versions, cobra.ShellCompDirectiveNoFileComp
}

// migrationProgress shows the progress of a migration. On a terminal this is a bar that is redrawn. Elsewhere it is a
// line at intervals.
type migrationProgress struct {
	w     io.Writer
	bar   bool
	every time.Duration

	phase  migration.Phase
	began  time.Time // The start of the phase.
	last   time.Time // The time of the last output.
	drawn  bool      // Whether a bar is on the current line of the terminal.
	newest migration.Progress
}

func newMigrationProgress(w io.Writer) *migrationProgress {
	if isTerminal(w) {
		return &migrationProgress{w: w, bar: true, every: 100 * time.Millisecond}
	}
	return &migrationProgress{w: w, every: 10 * time.Second}
}

var phaseTexts = map[migration.Phase]string{
	migration.Waiting:   "waiting for the API server to store in the version",
	migration.Reading:   "reading every object",
	migration.Rewriting: "rewriting",
	migration.Verifying: "checking objects that were written meanwhile",
}

func (p *migrationProgress) show(now migration.Progress) {
	at := time.Now()
	p.newest = now
	switch {
	case now.Phase != p.phase:
		p.end()
		p.phase, p.began = now.Phase, at
	case at.Sub(p.last) < p.every && now.Done < now.Total:
		return
	case now.Done == now.Total && !p.bar:
		return // Another line follows.
	}
	p.last = at
	p.draw(p.text(at))
}

// text returns the text of the progress.
func (p *migrationProgress) text(at time.Time) string {
	text := phaseTexts[p.phase]
	if p.newest.Total > 0 {
		if p.bar {
			text = fmt.Sprintf("%s %s", bar(p.newest.Done, p.newest.Total), text)
		}
		text += fmt.Sprintf(": %d of %d", p.newest.Done, p.newest.Total)
		if seconds := at.Sub(p.began).Seconds(); seconds >= 1 && p.newest.Done > 0 {
			rate := float64(p.newest.Done) / seconds
			left := time.Duration(float64(p.newest.Total-p.newest.Done) / rate * float64(time.Second))
			text += fmt.Sprintf(", %.0f a second, %s left", rate, left.Round(time.Second))
		}
	}
	if p.newest.Failed > 0 {
		text += fmt.Sprintf(", %d failed", p.newest.Failed)
	}
	return text
}

func (p *migrationProgress) draw(text string) {
	if !p.bar {
		fmt.Fprintln(p.w, text)
		return
	}
	fmt.Fprintf(p.w, "\r%s\x1b[K", text)
	p.drawn = true
}

// end draws the bar once more and begins a new line, so that later output does not overwrite the bar.
func (p *migrationProgress) end() {
	if p.drawn {
		p.draw(p.text(time.Now()))
		fmt.Fprintln(p.w)
		p.drawn = false
	}
}

// barWidth is the number of characters between the ends of a bar.
const barWidth = 24

// bar draws a bar with the completed part.
func bar(done, total int) string {
	full := min(barWidth, barWidth*done/max(1, total))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}
