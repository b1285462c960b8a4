package cli

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/cobra"

	"refract.dev/fleet/hub"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/internal/ui"
)

// uiOptions are the flags of ui.
type uiOptions struct {
	inputs inputs
	port   int
	noOpen bool
	warned bool // Whether the warnings about the input have been written.
}

func newUICommand(s *streams) *cobra.Command {
	o := &uiOptions{}
	cmd := &cobra.Command{
		Use:   "ui [-f FILE] [--hub]",
		Short: "Show the fleet in a browser",
		Long: `Show the fleet in a browser: the content of each object on each cluster, and the
source of each line; the effects of a policy, and of changes to it; rollouts,
clusters, injected services, and the versions of custom resources. The pages show
files, or a hub and its current changes.

The server listens on 127.0.0.1 only, and requires the printed address, which
contains a token. It reads with your own rights, writes nothing, and runs until
interrupted.`,
		Example: `  refract ui --hub
  refract ui -f shop/ -f clusters.yaml
  refract ui --context hub --no-open`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	o.inputs.addFlags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.port, "port", 0, "`number` of the port to listen on; 0 for a free port")
	f.BoolVar(&o.noOpen, "no-open", false, "print the address, but open no browser")
	return s.finishing(cmd)
}

func (o *uiOptions) run(ctx context.Context, s *streams) (err error) {
	if !o.inputs.given() {
		o.inputs.hub = true
	}
	if o.port < 0 || o.port > 65535 {
		return fmt.Errorf("--port: want a number up to 65535, got %d", o.port)
	}
	if slices.Contains(o.inputs.files, manifest.Stdin) {
		return errors.New("-f: stdin can be read only once, but the pages need their input repeatedly; name a file")
	}
	log := funcr.New(func(_, args string) { fmt.Fprintln(s.err, args) }, funcr.Options{})
	server, err := ui.Listen(o.port, log)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "refract-ui-") // Its mode is 0700.
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ready := func() {
		fmt.Fprintln(s.out, server.Address())
		if o.noOpen {
			return
		}
		if err := open(ctx, dir, server.Address()); err != nil {
			fmt.Fprintf(s.err, "note: cannot open a browser (%v); open the address\n", err)
		}
	}
	return o.serve(ctx, s, server, ready)
}

// serve serves the pages until ctx ends.
func (o *uiOptions) serve(ctx context.Context, s *streams, server *ui.Server, ready func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	following := make(chan error, 1)
	live := o.inputs.live()
	if live {
		hub, err := hubClient(ctx, &o.inputs.cluster)
		if err != nil {
			return err
		}
		read := func(ctx context.Context) (*ui.Input, error) { return o.read(ctx, s) }
		go func() { following <- ui.Follow(ctx, server, hub, read, ready) }()
	} else {
		in, err := o.read(ctx, s)
		if err != nil {
			return err
		}
		is, err := ui.NewSnapshot(in)
		if err != nil {
			return explainClusters(err)
		}
		server.Show(is)
		ready()
	}
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(ctx) }()
	select {
	case err := <-serving:
		stop()
		if live {
			if followed := <-following; !errors.Is(followed, context.Canceled) {
				err = errors.Join(err, followed)
			}
		}
		return err
	case err := <-following:
		interrupted := ctx.Err() != nil && errors.Is(err, context.Canceled)
		stop()
		if served := <-serving; interrupted {
			return served
		}
		return explainHub(explainClusters(err))
	}
}

// read reads the input of the pages.
func (o *uiOptions) read(ctx context.Context, s *streams) (*ui.Input, error) {
	r, err := o.inputs.open(ctx, s)
	if err != nil {
		return nil, err
	}
	o.warn(s, r)
	in := &ui.Input{Origin: o.origin(), Set: r.set, Problems: slices.Concat(r.problems, r.left(r.set)), Live: o.inputs.live(), Now: time.Now()}
	if len(o.inputs.files) > 0 {
		in.Documents, _ = manifest.Documents(o.inputs.files, s.in) // The problems with files are already in Problems.
	}
	if o.inputs.live() {
		cfg, _, err := hubConfig(ctx, &o.inputs.cluster)
		if err != nil {
			return nil, err
		}
		conversions, err := hub.Conversions(ctx, cfg)
		if err != nil {
			in.ConversionsUnread = err.Error()
		}
		for _, c := range conversions {
			in.Documents = append(in.Documents, manifest.Document{Place: manifest.Place{File: liveFile}, Content: c.Object})
		}
	}
	return in, nil
}

// warn writes the problems with the input, but only once. The pages show the input without the affected objects.
func (o *uiOptions) warn(s *streams, r *input) {
	if o.warned {
		return
	}
	o.warned = true
	for _, p := range r.problems {
		fmt.Fprintf(s.err, "warning: %s\n", p)
	}
	r.warn(s, r.set)
}

// origin describes where the input is from.
func (o *uiOptions) origin() string {
	text := ""
	if o.inputs.live() {
		text = "hub"
		if cfg, err := o.inputs.cluster.restConfig(); err == nil {
			text += " " + cfg.Host
		}
	}
	for i, name := range o.inputs.files {
		if text != "" {
			text += ", "
		}
		if i == 3 {
			return text + fmt.Sprintf("and %d more files", len(o.inputs.files)-i)
		}
		text += name
	}
	return text
}

// open opens an address in the browser. All users of a machine can see the arguments of programs, so the address must
// not be an argument. Instead the browser gets the name of a file that redirects to the address. Only this user can
// read the folder of the file.
func open(ctx context.Context, dir, address string) error {
	program, args := "xdg-open", []string{}
	switch runtime.GOOS {
	case "darwin":
		program = "open"
	case "windows":
		program, args = "rundll32", []string{"url.dll,FileProtocolHandler"}
	}
	if _, err := exec.LookPath(program); err != nil {
		return err
	}
	name := filepath.Join(dir, "open.html")
	text := fmt.Sprintf("<!DOCTYPE html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url=%s\">", template.HTMLEscapeString(address))
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return err
	}
	return exec.CommandContext(ctx, program, append(args, name)...).Start() //nolint:gosec // The program is one of the three above.
}
