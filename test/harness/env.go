package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/fleet/hub"
	"refract.dev/internal/playground"
)

// Topology describes the control planes that tests need. The zero value is a hub without members.
type Topology struct {
	// Members is the number of member clusters.
	Members int
	// Nodes gives the members controllers, a scheduler and Nodes. Without Nodes, members only store objects.
	Nodes bool
	// Alike makes the clusters identical. By default, each has its own address range, node ports and StorageClass, and
	// three members have further differences: see [playground.Traits].
	Alike bool
	// OrdinaryHub makes the hub an ordinary cluster with all controllers, a scheduler and Nodes.
	OrdinaryHub bool
	// LargeHub lets the hub store objects that are too large for members. It requires [Topology.Own].
	LargeHub bool
	// Own is for tests that stop, freeze or empty control planes. Such control planes are not shared.
	Own bool
	// CRDs installs Refract's CRDs on the hub before the tests begin.
	CRDs bool
	// Address makes the hub a cluster whose Pods run on real Nodes and reach the members: see [playground.Options]. The
	// test starts the Nodes. It requires [Topology.Own].
	Address string
	// Unaudited disables the audit log, which costs time; [Env.Writes] then returns nothing. It is for benchmarks and
	// requires [Topology.Own].
	Unaudited bool
}

// Env is a hub with its members, and the programs that tests run with them. The clusters are empty when an Env is
// opened. Its methods are safe for concurrent use unless they say otherwise.
type Env struct {
	// Members are the names of the member clusters.
	Members []string
	// View gives access to the data of the control planes without their API servers.
	View *playground.View
	// Playground has the control planes if they are [Topology.Own]. It is nil if they are shared with later tests.
	Playground *playground.Playground
	// Dir is a folder for files of tests. Close removes it.
	Dir string

	assets     string
	began      time.Time
	kubeconfig map[string]string // By cluster name.
	release    func() error      // Returns the control planes, or stops them.
	binary     func() (string, error)
	closed     func() error // Closes the Env once.

	mu       sync.Mutex
	replicas []*Replica
	readers  map[string]*reader // By cluster name.
}

// Open returns control planes without objects of other tests. The caller must close them.
//
// It uses free control planes of `make test`. If none is free, or if tests run alone, it starts control planes from the
// binaries in the module's bin folder or in $KUBEBUILDER_ASSETS. This process keeps them for its later tests, unless
// they are [Topology.Own].
func Open(ctx context.Context, t Topology) (_ *Env, err error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	done, err := opened.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(opened.ctx, cancel)()
	e := &Env{began: time.Now(), readers: map[string]*reader{}, kubeconfig: map[string]string{}}
	if e.assets, err = playground.Assets(filepath.Join(root, "bin", "refract")); err != nil {
		return nil, err
	}
	if e.Dir, err = os.MkdirTemp("", "refract-test-"); err != nil {
		return nil, err
	}
	e.closed = sync.OnceValue(e.end)
	opened.add(e)
	e.binary = sync.OnceValues(func() (string, error) { return build(root, e.Dir) })
	if err := e.open(ctx, t); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Env) open(ctx context.Context, t Topology) (err error) {
	if t.Own {
		err = e.start(ctx, t)
	} else {
		err = e.share(ctx, t)
	}
	if err != nil {
		return err
	}
	e.kubeconfig["hub"] = e.View.Hub().Kubeconfig
	for _, m := range e.View.Members()[:t.Members] {
		e.Members = append(e.Members, m.Name)
		e.kubeconfig[m.Name] = m.Kubeconfig
	}
	if !t.CRDs {
		return nil
	}
	cfg, err := e.Config("hub")
	if err != nil {
		return err
	}
	return hub.InstallCRDs(ctx, cfg)
}

// share borrows kept control planes. If none are free, it starts new ones and keeps them.
func (e *Env) share(ctx context.Context, t Topology) error {
	from, err := borrow(ctx, t)
	if from == nil && err == nil {
		from, err = ours.start(ctx, e.assets, t)
	}
	if err != nil {
		return err
	}
	e.View, e.release = from.view, from.giveBack
	return nil
}

// start starts control planes that end with the Env, or with the process.
func (e *Env) start(ctx context.Context, t Topology) error {
	p, err := playground.Start(ctx, t.options(filepath.Join(e.Dir, "playground"), e.assets))
	if err != nil {
		return err
	}
	e.View, e.release, e.Playground = &p.View, p.Stop, p
	return nil
}

// options returns the playground options of this topology.
func (t Topology) options(dir, assets string) playground.Options {
	return playground.Options{
		Dir: dir, Assets: assets, Members: t.Members, Bare: !t.Nodes, Audit: !t.Unaudited, Address: t.Address, Alike: t.Alike || t.Address != "",
		OrdinaryHub: t.OrdinaryHub, LargeHub: t.LargeHub,
	}
}

// Close stops the replicas, and then the control planes unless later tests share them. It returns an error if a replica
// has crashed, because a test may not notice this while another replica takes over. A second call waits for the first
// and returns the same error.
func (e *Env) Close() error { return e.closed() }

func (e *Env) end() error {
	defer opened.remove(e)
	var errs []error
	for _, r := range e.started() {
		_ = r.Signal(syscall.SIGCONT) // A frozen replica would not handle the signal that ends it.
		errs = append(errs, r.Stop(syscall.SIGTERM), crashed(r.Log))
	}
	if e.release != nil {
		errs = append(errs, e.release())
	}
	return errors.Join(append(errs, removeAll(e.Dir))...)
}

// logs returns the logs of the started replicas, with the names of the replicas.
func (e *Env) logs() map[string]string {
	names := map[string]string{}
	for _, r := range e.started() {
		names[r.Log] = r.Name
	}
	return names
}

func (e *Env) started() []*Replica {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.replicas
}

// Kubeconfig returns the path of an administrator's kubeconfig for a cluster.
func (e *Env) Kubeconfig(cluster string) string { return e.kubeconfig[cluster] }

// Config returns an administrator's client configuration for a cluster, without throttling and warnings, with the user
// agent "test". The caller may change it.
func (e *Env) Config(cluster string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", e.Kubeconfig(cluster))
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	cfg.UserAgent = "test"
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg, nil
}

// Client returns an administrator's client for a cluster. It reads from the API server, and knows the types of
// Kubernetes and of Refract.
func (e *Env) Client(cluster string) (client.WithWatch, error) {
	cfg, err := e.Config(cluster)
	if err != nil {
		return nil, err
	}
	return ClientFor(cfg)
}

// ClientFor is like [Env.Client], for the user of the given configuration.
func ClientFor(cfg *rest.Config) (client.WithWatch, error) {
	kinds, err := hub.Scheme()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(cfg, client.Options{Scheme: kinds})
}

// Binary returns the path of the refract program: $REFRACT_TEST_BINARY, which `make test` has built, or a program that
// is built once from the sources of the module.
func (e *Env) Binary() (string, error) { return e.binary() }

// Program is like [Env.Binary], for tests that start control planes without an Env. A built program is written to dir.
func Program(dir string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return build(root, dir)
}

func build(root, dir string) (string, error) {
	if built := os.Getenv(binaryVariable); built != "" {
		return built, nil
	}
	path := filepath.Join(dir, "refract")
	cmd := exec.CommandContext(opened.ctx, "go", "build", "-o", path, "./cmd/refract")
	cmd.Dir = root
	_, err := output(cmd)
	return path, err
}

// Assets returns the folder with the binaries of the control planes and kubectl.
func (e *Env) Assets() string { return e.assets }

// Refract runs the program and returns its standard output.
func (e *Env) Refract(args ...string) (string, error) { return e.RefractIn("", args...) }

// RefractIn runs the program in a folder and returns its standard output.
func (e *Env) RefractIn(dir string, args ...string) (string, error) {
	binary, err := e.Binary()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(opened.ctx, binary, args...)
	cmd.Dir = dir
	return output(cmd)
}

// Kubectl runs kubectl against a cluster with the manifest as its standard input, and returns its standard output.
func (e *Env) Kubectl(cluster, manifest string, args ...string) (string, error) {
	return e.KubectlWith(e.Kubeconfig(cluster), manifest, args...)
}

// KubectlWith is like [Env.Kubectl] with any kubeconfig.
func (e *Env) KubectlWith(kubeconfig, manifest string, args ...string) (string, error) {
	return output(e.kubectl(kubeconfig, manifest, args...))
}

// KubectlSays is like [Env.Kubectl], for tests of the output that users see: it returns the standard output and the
// standard error of kubectl. The returned error does not contain them.
func (e *Env) KubectlSays(cluster, manifest string, args ...string) (all string, err error) {
	out, err := e.kubectl(e.Kubeconfig(cluster), manifest, args...).CombinedOutput()
	return string(out), err
}

func (e *Env) kubectl(kubeconfig, manifest string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(opened.ctx, filepath.Join(e.assets, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+e.Dir) // kubectl stores its discovery cache in HOME.
	cmd.Stdin = strings.NewReader(manifest)
	return cmd
}

// output runs a command and returns its standard output. The error contains the command line and the standard error.
func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return string(out), nil
}

// Root returns the folder of the module: the nearest folder with a go.mod, from the working directory upward.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("looking for the module: there is no go.mod in this folder or above it")
		}
	}
}
