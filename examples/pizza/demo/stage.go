package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/examples/pizza/restaurant"
	"refract.dev/internal/playground"
	"refract.dev/kit/webhook"
)

const (
	// folder is the working directory of the commands.
	folder = "examples/pizza"
	// address is the address of the webhook in the manifests.
	address = "127.0.0.1:8443"
	// patience bounds each wait.
	patience = 30 * time.Second

	group   = "restaurant.programming-kubernetes.info"
	prefix  = "/registry/" + group + "/pizzas/"
	storyNS = "pizza-crd"
)

// stage is a control plane and the webhook next to it.
type stage struct {
	playground     *playground.Playground
	cfg            *rest.Config
	api            client.WithWatch
	env            []string
	address        string // Address of the webhook: the one in the manifests unless it is in use.
	stdout, stderr io.Writer

	commands int
	stop     func() error // Ends the webhook; nil while it does not serve.
}

func newStage(ctx context.Context, pg *playground.Playground, assets, dir string, stdout, stderr io.Writer) (*stage, error) {
	// The story changes the kubeconfig, so it uses a copy of the playground's.
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text, err := os.ReadFile(pg.Hub().Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the way to the API server: %w", err)
	}
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		return nil, fmt.Errorf("writing the way to the API server: %w", err)
	}
	s := &stage{playground: pg, stdout: stdout, stderr: stderr, env: append(os.Environ(),
		"KUBECONFIG="+kubeconfig, "HOME="+dir, "PATH="+assets+string(os.PathListSeparator)+os.Getenv("PATH"))}
	if s.cfg, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	s.cfg.QPS, s.cfg.WarningHandler = -1, rest.NoWarnings{}
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, err
		}
	}
	if s.api, err = client.NewWithWatch(s.cfg, client.Options{Scheme: kinds}); err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	s.address, err = free(ctx)
	return s, err
}

// free returns the address in the manifests or, if another program listens there, a different one.
func free(ctx context.Context) (string, error) {
	var errs error
	for _, at := range []string{address, "127.0.0.1:0"} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp4", at)
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		errs = errors.Join(errs, err)
	}
	return "", fmt.Errorf("finding a port for the webhook: %w", errs)
}

// close stops the webhook, if it serves.
func (s *stage) close() error {
	if s.stop == nil {
		return nil
	}
	stop := s.stop
	s.stop = nil
	return stop()
}

// play plays one scene.
func (s *stage) play(ctx context.Context, of scene) error {
	fmt.Fprintf(s.stdout, "\n## %s\n", of.title)
	if of.text != "" {
		fmt.Fprintf(s.stdout, "\n%s\n", of.text)
	}
	spaced := false // Whether an empty line precedes the next command.
	for _, a := range of.acts {
		if a.says == "" && !spaced && a.shown() {
			fmt.Fprintln(s.stdout)
		}
		spaced = a.says == "" && (spaced || a.shown())
		if err := s.perform(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) perform(ctx context.Context, a act) error {
	switch {
	case a.says != "":
		fmt.Fprintf(s.stdout, "\n%s\n", a.says)
		return nil
	case a.serves && s.stop != nil:
		return s.close()
	case a.serves:
		return s.serve(ctx)
	case a.stores != "":
		return s.show(ctx, a)
	case a.awaits != "":
		return await(ctx, func() error {
			out, _ := s.run(ctx, a.awaits) // The output says why it does not succeed yet.
			return wanted(a.awaits, out, a.wants)
		})
	default:
		return s.types(ctx, a)
	}
}

// types prints a command, runs it, and prints its output.
func (s *stage) types(ctx context.Context, a act) error {
	line := s.atAddress(a.types)
	fmt.Fprintf(s.stdout, "$ %s\n", line)
	out, err := s.run(ctx, line)
	s.commands++
	fmt.Fprint(s.stdout, out)
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && (!failed || !a.fails) {
		return fmt.Errorf("running %s: %w", line, err)
	}
	if err == nil && a.fails {
		return fmt.Errorf("%s was to fail", line)
	}
	return wanted(line, out, a.wants)
}

// atAddress changes a command that applies manifests so that they have the real address of the webhook.
func (s *stage) atAddress(line string) string {
	dir, ok := strings.CutPrefix(line, "kubectl apply -k ")
	if !ok || s.address == address || !strings.Contains(dir, "playground") {
		return line
	}
	return fmt.Sprintf("kubectl kustomize %s | sed s/%s/%s/ | kubectl apply -f -", dir, address, s.address)
}

// run runs a command line and returns all of its output.
func (s *stage) run(ctx context.Context, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", line) //nolint:gosec // The lines are those of the story.
	cmd.Dir, cmd.Env = folder, s.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // Processes of the shell may outlive it.
	err := cmd.Run()
	return out.String(), err
}

// show prints the content of a pizza in etcd.
func (s *stage) show(ctx context.Context, a act) error {
	key := prefix + storyNS + "/" + a.stores
	all, err := s.playground.Stored(ctx, s.playground.Hub().Name, key)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.stdout, "etcd %s\n%s\n", key, bytes.TrimSpace(all[key]))
	return wanted(key, string(all[key]), a.wants)
}

// wanted returns an error unless the output contains the text.
func wanted(of, out, text string) error {
	if strings.Contains(out, text) {
		return nil
	}
	return fmt.Errorf("%s: want %q in what it prints, got:\n%s", of, text, out)
}

// await repeats a check until it returns no error.
func await(ctx context.Context, is func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := is()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", patience, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// serve starts the webhook in this process, and returns when it is ready.
func (s *stage) serve(ctx context.Context) error {
	host, _, err := net.SplitHostPort(s.address)
	if err != nil {
		return err
	}
	certificates := webhook.Issued(s.api, types.NamespacedName{Namespace: storyNS, Name: "serving-cert"}, []string{host}, webhook.IssuedOptions{})
	server, err := webhook.New(webhook.Options{BindAddress: s.address, Certificates: certificates})
	if err != nil {
		return err
	}
	opened, err := restaurant.New(restaurant.Options{Config: s.cfg, Server: server})
	if err != nil {
		return err
	}
	trust := webhook.Trust(s.api, certificates, webhook.Targets{
		CRDs: []string{"pizzas." + group}, Mutating: []string{group}, Validating: []string{group},
	}, logr.Discard())

	ctx, cancel := context.WithCancel(ctx)
	parts, running := errgroup.WithContext(ctx)
	for _, part := range []interface {
		Start(ctx context.Context) error
	}{server, opened, trust} {
		parts.Go(func() error { return part.Start(running) })
	}
	s.stop = func() error {
		cancel()
		return parts.Wait()
	}
	err = await(running, server.Ready)
	fmt.Fprintf(s.stderr, "webhook: serving at https://%s\n", s.address)
	return err
}
