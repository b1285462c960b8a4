package fleet

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/hub"
	"refract.dev/internal/playground"
)

// Options say what [StartControlled] starts.
type Options struct {
	// Dir is an empty folder for everything that is written.
	Dir string
	// Root is the folder of the module.
	Root string
	// Members is how many member clusters there are.
	Members int
	// Whole gives the members their controllers, a scheduler and Nodes.
	Whole bool
}

// StartControlled builds refract from the module's sources and starts a hub with
// members that ends with this process, and whose components the test can halt,
// freeze and rob of their data by [Fleet.Playground]. The hub has Refract's types.
// Nothing has joined it yet, and the controllers do not run. API servers keep an
// audit log: see [Fleet.Writes].
func StartControlled(ctx context.Context, o Options) (f *Fleet, err error) {
	if f, err = build(ctx, o.Dir, o.Root); err != nil {
		return nil, err
	}
	f.Playground, err = playground.Start(ctx, playground.Options{
		Dir: f.dir, Assets: f.assets, Members: o.Members, Bare: !o.Whole, Audit: true,
	})
	if err != nil {
		return nil, err
	}
	cfg, err := f.config("hub")
	if err == nil {
		err = hub.InstallCRDs(ctx, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, f.Playground.Stop())
	}
	for _, m := range f.Playground.Members() {
		f.Members = append(f.Members, m.Name)
	}
	return f, nil
}

// build makes a Fleet without clusters.
func build(ctx context.Context, dir, root string) (*Fleet, error) {
	assets, err := playground.Assets(filepath.Join(root, "bin", "refract"))
	if err != nil {
		return nil, err
	}
	f := &Fleet{dir: filepath.Join(dir, "fleet"), assets: assets, refract: filepath.Join(dir, "refract"), Log: filepath.Join(dir, "run.log")}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", f.refract, filepath.Join(root, "cmd", "refract")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building refract: %w\n%s", err, out)
	}
	return f, nil
}

// config returns an administrator's way into the cluster.
func (f *Fleet) config(cluster string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig(cluster))
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	cfg.UserAgent = "test"
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg, nil
}

// Client returns an administrator's client of a cluster, whose user agent is "test".
func (f *Fleet) Client(cluster string) (client.Client, error) {
	cfg, err := f.config(cluster)
	if err != nil {
		return nil, err
	}
	return hub.Client(cfg)
}

// Access is how a hub reaches a member.
type Access struct {
	Endpoint string // URL.
	CA       []byte // PEM.
	// Either of the two.
	Cert, Key []byte // PEM.
	Token     string
}

// Access returns how an administrator reaches a cluster directly.
func (f *Fleet) Access(cluster string) (Access, error) {
	cfg, err := f.config(cluster)
	if err != nil {
		return Access{}, err
	}
	return Access{Endpoint: cfg.Host, CA: cfg.CAData, Cert: cfg.CertData, Key: cfg.KeyData}, nil
}

// Join makes what the access leads to a member of the hub, or has a member be
// reached in that way from now on. The i-th member of the fleet is given the
// labels that refract up gives it.
func (f *Fleet) Join(ctx context.Context, name string, to Access) error {
	c, err := f.Client("hub")
	if err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.SystemNamespace}}
	if err := client.IgnoreAlreadyExists(c.Create(ctx, ns)); err != nil {
		return err
	}
	data := map[string]any{corev1alpha1.SecretCertificateAuth: encoded(to.CA)}
	if to.Token != "" {
		data[corev1alpha1.SecretServiceAccountToken] = encoded([]byte(to.Token))
	} else {
		data[corev1alpha1.SecretClientCertificate], data[corev1alpha1.SecretClientKey] = encoded(to.Cert), encoded(to.Key)
	}
	regions, providers := []string{"eu", "us", "ap"}, []string{"alpha", "beta", "gamma"}
	labels := map[string]any{}
	for i, m := range f.Members {
		if m == name {
			labels["region"], labels["provider"] = regions[i%len(regions)], providers[i%len(providers)]
		}
	}
	for _, o := range []map[string]any{
		{
			"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{"name": name, "namespace": corev1alpha1.SystemNamespace}, "data": data,
		},
		{
			"apiVersion": corev1alpha1.GroupVersion.String(), "kind": corev1alpha1.KindFederatedCluster,
			"metadata": map[string]any{"name": name, "labels": labels},
			"spec": map[string]any{
				"apiEndpoint": to.Endpoint, "useServiceAccount": to.Token != "", "secretRef": map[string]any{"name": name},
			},
		},
	} {
		if err := Apply(ctx, c, o); err != nil {
			return err
		}
	}
	return nil
}

func encoded(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// JoinAll makes all members of the fleet members of the hub, each reached directly.
func (f *Fleet) JoinAll(ctx context.Context) error {
	for _, m := range f.Members {
		to, err := f.Access(m)
		if err != nil {
			return err
		}
		if err := f.Join(ctx, m, to); err != nil {
			return err
		}
	}
	return nil
}

// LogTail returns the last lines of a log, for a test that has failed to show;
// without those that only say that somebody has asked whether it is ready.
func LogTail(path string) string {
	const most = 60
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(line string) bool {
		return strings.Contains(line, "healthz check failed")
	})
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
