package playground

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// attempts is the maximum number of starts of a component whose port is in use.
const attempts = 5

// starter starts the clusters of a playground.
type starter struct {
	crew      *crew
	assets    string
	progress  func(string)
	freePorts func(ctx context.Context, n int) ([]int, error)
	stages    []byte // For kwok.

	life       context.Context //nolint:containedctx // It ends with the playground, and is for work that continues after the call.
	background *sync.WaitGroup // The goroutines of this process that run until life ends.
}

// startAll starts the clusters, and returns when all can be used.
func (s *starter) startAll(ctx context.Context, clusters []*cluster) error {
	if slices.ContainsFunc(clusters, func(c *cluster) bool { return c.role == full }) {
		var err error
		if s.stages, err = kwokStages(ctx, s.assets); err != nil {
			return err
		}
	}
	// It is fastest to start all clusters at the same time. But an API server that waits too long for processor time
	// exits, so the number is limited.
	slots := make(chan struct{}, 2*runtime.NumCPU())
	return each(ctx, clusters, func(ctx context.Context, c *cluster) error {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.startAPI(ctx, c); err != nil {
			return err
		}
		if err := s.differ(ctx, c); err != nil {
			return err
		}
		return s.startControllers(ctx, c)
	})
}

// startAPI starts etcd and the API server of a cluster, and returns when an administrator can use the cluster.
func (s *starter) startAPI(ctx context.Context, c *cluster) error {
	if err := c.prepare(); err != nil {
		return err
	}
	if err := s.startEtcd(ctx, c); err != nil {
		return err
	}
	s.progress(c.Name + ": etcd is ready")

	// etcd must be ready first: an API server exits if etcd does not respond within seconds.
	if err := s.startAPIServer(ctx, c); err != nil {
		return err
	}
	s.progress(c.Name + ": the API server is ready")
	return c.writeAdminKubeconfig(c.Kubeconfig)
}

func (s *starter) startEtcd(ctx context.Context, c *cluster) error {
	probe, done, err := c.etcdProbe()
	if err != nil {
		return err
	}
	defer done()
	c.Etcd, err = s.serve(ctx, c, server{ports: 2, with: c.etcdComponent, probe: probe})
	return err
}

func (s *starter) startAPIServer(ctx context.Context, c *cluster) error {
	probe, done, err := c.apiServerProbe()
	if err != nil {
		return err
	}
	defer done()
	c.Endpoint, err = s.serve(ctx, c, server{ports: 1, with: c.apiServerComponent, probe: probe})
	return err
}

// startControllers starts the other components of a cluster, and returns when they work.
func (s *starter) startControllers(ctx context.Context, c *cluster) error {
	if c.role == bare {
		return nil
	}
	if err := c.writeComponentKubeconfig(controllersConfig, "system:kube-controller-manager"); err != nil {
		return err
	}
	if err := s.run(c, c.controllersComponent()); err != nil {
		return err
	}
	if c.role == full || c.runsPods() {
		if err := s.startScheduler(c); err != nil {
			return err
		}
	}
	if c.role == full {
		if err := s.startNodes(ctx, c); err != nil {
			return err
		}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	if err := awaitServiceAccount(ctx, client); err != nil {
		return fmt.Errorf("%s: waiting for the controllers, whose logs are in %s: %w", c.Name, c.path(logsDir), err)
	}
	s.progress(c.Name + ": the controllers are running")
	return nil
}

// startScheduler starts the scheduler of a cluster.
func (s *starter) startScheduler(c *cluster) error {
	if err := c.writeComponentKubeconfig(schedulerConfig, "system:kube-scheduler"); err != nil {
		return err
	}
	return s.run(c, c.schedulerComponent())
}

// startNodes adds fake Nodes to a cluster, and waits until they are ready.
func (s *starter) startNodes(ctx context.Context, c *cluster) error {
	if err := c.write(stagesFile, s.stages); err != nil {
		return err
	}
	if err := c.writeAdminKubeconfig(c.path(kwokConfig)); err != nil {
		return err
	}
	if err := s.run(c, c.kwokComponent()); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	if err := addNodes(ctx, client); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	if err := awaitNodes(ctx, client); err != nil {
		return fmt.Errorf("%s: waiting for the Nodes, logs are in %s: %w", c.Name, c.path(logsDir), err)
	}
	return nil
}

// run starts a component without waiting until it is ready.
func (s *starter) run(c *cluster, what component) error {
	p, err := s.crew.start(s.spec(c, what))
	if err != nil {
		return err
	}
	s.crew.watch(p)
	return nil
}

// server is a component that listens on ports.
type server struct {
	ports int                                         // The number of ports.
	with  func(ports []int) component                 // Returns the component with these ports.
	probe func(ctx context.Context, url string) error // Checks whether the component responds at the URL of its first port.
}

// serve starts a server, waits until it responds, and returns its URL. If another process uses one of the ports, serve
// starts the server again with other ports.
func (s *starter) serve(ctx context.Context, c *cluster, v server) (string, error) {
	for attempt := 1; ; attempt++ {
		ports, err := s.freePorts(ctx, v.ports)
		if err != nil {
			return "", err
		}
		p, err := s.crew.start(s.spec(c, v.with(ports)))
		if err != nil {
			return "", err
		}
		url := local(ports[0])
		err = p.await(ctx, func(ctx context.Context) error { return v.probe(ctx, url) })
		if err == nil {
			s.crew.watch(p)
			c.servers[Component(p.component)] = component{name: p.component, rank: p.rank, args: p.args}
			return url, nil
		}
		if attempt == attempts || !p.lostItsPort() {
			return "", err
		}
	}
}

// collection makes garbage collection less frequent: a heap may grow to four times the live heap, instead of twice. All
// components share the processors of one machine, and an API server would otherwise spend up to a fifth of its time on
// garbage collection. In return, a cluster needs some hundred MiB more.
const collection = "GOGC=300"

// spec returns the spec of a component's process. Of the user's environment, the process gets only PATH, because etcd
// and kwok also read settings from environment variables.
func (s *starter) spec(c *cluster, what component) spec {
	return spec{
		cluster:   c.Name,
		component: what.name,
		rank:      what.rank,
		binary:    filepath.Join(s.assets, what.name),
		args:      what.args,
		env:       []string{"HOME=" + c.dir, "PATH=" + os.Getenv("PATH"), collection},
		dir:       c.dir,
		log:       c.path(logsDir + "/" + what.name + ".log"),
	}
}

// BrokenTag is the tag of images whose containers never become ready. It simulates a broken release in clusters whose
// Pods are simulated.
const BrokenTag = "broken"

// kwokStages returns the configuration of kwok. With it, kwok makes Nodes and Pods ready, except for Pods with an image
// whose tag is [BrokenTag].
func kwokStages(ctx context.Context, assets string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(assets, "kwok"), "stages").Output()
	if err != nil {
		return nil, fmt.Errorf("reading the stages of kwok, which needs the build of `make controlplane`: %w", err)
	}
	return withoutBroken(out)
}

// withoutBroken excludes Pods with an image whose tag is [BrokenTag] from the stage that makes Pods ready.
func withoutBroken(stages []byte) ([]byte, error) {
	documents := bytes.Split(stages, []byte("\n---\n"))
	for i, text := range documents {
		stage := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &stage.Object); err != nil {
			return nil, fmt.Errorf("reading the stages of kwok: %w", err)
		}
		if stage.GetName() != "pod-ready" {
			continue
		}
		path := []string{"spec", "selector", "matchExpressions"}
		expressions, _, err := unstructured.NestedSlice(stage.Object, path...)
		if err != nil {
			return nil, fmt.Errorf("reading the stages of kwok: %w", err)
		}
		expressions = append(expressions, map[string]any{
			"key": `.spec.containers.[].image | select( endswith(":` + BrokenTag + `") )`, "operator": "DoesNotExist",
		})
		if err := unstructured.SetNestedSlice(stage.Object, expressions, path...); err != nil {
			return nil, err
		}
		if documents[i], err = yaml.Marshal(stage.Object); err != nil {
			return nil, err
		}
	}
	return bytes.Join(documents, []byte("\n---\n")), nil
}

// each calls f for all clusters at the same time. After the first error it cancels the contexts of the other calls. It
// returns this error.
func each(ctx context.Context, clusters []*cluster, f func(context.Context, *cluster) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, c := range clusters {
		wg.Go(func() {
			if err := f(ctx, c); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
