package conversion

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/kit/webhook/pki"
	"refract.dev/test/harness"
)

// rights is the manifest of the rights of `refract run --conversion`, as administrators apply it. account is the
// ServiceAccount in it.
const (
	rights  = root + "/config/rbac/conversion/conversion.yaml"
	account = "refract-conversion"
	// certificates is the name of the Secret with the replicas' certificates.
	certificates = "refract-conversion-webhook"
)

// replicas are replicas of `refract run --conversion` behind one address, as behind a Service.
type replicas struct {
	world *world
	// args are the arguments of each replica, without its addresses.
	args  []string
	slots []*slot
	// probed makes the front skip replicas that are not ready.
	probed bool
}

// slot is a replica with its address. The replica can be started again.
type slot struct {
	name, address string
	now           *harness.Replica
}

// start starts both replicas. Their certificates were issued some hours ago, so that tests can renew them.
func (w *world) start(ctx context.Context) error {
	kubeconfig, err := w.kubeconfig(ctx)
	if err != nil {
		return err
	}
	bundle, err := issue(nil)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1alpha1.SystemNamespace, Name: w.certificates}, Type: corev1.SecretTypeTLS, Data: bundle,
	}
	if err := w.api.Create(ctx, secret); err != nil {
		return err
	}
	addresses, err := harness.FreePorts(2)
	if err != nil {
		return err
	}
	if w.front, err = listen(w.presented, addresses...); err != nil {
		return err
	}
	w.replicas = &replicas{world: w, args: []string{"--kubeconfig", kubeconfig, "--conversion"}}
	for i, name := range []string{"one", "two"} {
		w.replicas.slots = append(w.replicas.slots, &slot{name: name, address: addresses[i]})
	}
	return w.replicas.restore(ctx)
}

// kubeconfig returns a kubeconfig with the rights of `refract run --conversion` only.
func (w *world) kubeconfig(ctx context.Context) (string, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.SystemNamespace}}
	if err := client.IgnoreAlreadyExists(w.api.Create(ctx, namespace)); err != nil {
		return "", err
	}
	manifest, err := os.ReadFile(rights)
	if err != nil {
		return "", err
	}
	if err := harness.ApplyAll(ctx, w.api, string(manifest)); err != nil {
		return "", err
	}
	hours := int64(2 * time.Hour / time.Second)
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}
	who := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: account}}
	if err := w.api.SubResource("token").Create(ctx, who, token); err != nil {
		return "", err
	}
	to, err := w.env.Access("hub")
	if err != nil {
		return "", err
	}
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: to.Endpoint, CertificateAuthorityData: to.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{account: {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: account}},
		CurrentContext: "hub",
	})
	if err != nil {
		return "", err
	}
	path := filepath.Join(w.env.Dir, account+".yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// kill ends all replicas like a crash, and deletes their Lease. Otherwise, changes of policies would wait until the
// Lease has expired; other tests cover this.
func (r *replicas) kill(ctx context.Context) error {
	if err := r.stop(syscall.SIGKILL); err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1alpha1.SystemNamespace, Name: "refract-conversion"}}
	return r.world.api.Delete(ctx, lease)
}

// stop ends all replicas with a signal.
func (r *replicas) stop(with syscall.Signal) error {
	for _, s := range r.slots {
		if err := s.now.Stop(with); err != nil {
			return err
		}
	}
	return nil
}

// restore starts the replicas that do not run, and waits until all are ready.
func (r *replicas) restore(ctx context.Context) (err error) {
	for _, s := range r.slots {
		if s.now != nil && !s.now.Ended() {
			continue
		}
		where := []string{"--webhook-url", r.world.front.url(), "--webhook-bind-address", s.address}
		if s.now, err = r.world.env.Replica(s.name, slices.Concat(r.args, where)...); err != nil {
			return err
		}
		if r.probed {
			r.world.front.probe(s.address, s.now.Ready)
		}
	}
	for _, s := range r.slots {
		if err := harness.Await(ctx, s.now.Ready); err != nil {
			return fmt.Errorf("replica %s is not ready: %w\n%s", s.name, err, harness.LogTail(s.now.Log))
		}
	}
	return nil
}

// logs returns the last lines of all logs that name a group.
func (r *replicas) logs(group string) string {
	var out strings.Builder
	for _, s := range r.slots {
		for line := range strings.Lines(harness.LogTail(s.now.Log)) {
			if strings.Contains(line, group) {
				fmt.Fprintf(&out, "%s: %s", s.name, line)
			}
		}
	}
	return out.String()
}

// metrics returns the lines in the metrics of all replicas that contain all of the texts.
func (r *replicas) metrics(ctx context.Context, texts ...string) ([]string, error) {
	var out []string
	for _, s := range r.slots {
		all, err := s.now.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(all) {
			has := !strings.HasPrefix(line, "#")
			for _, text := range texts {
				has = has && strings.Contains(line, text)
			}
			if has {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return out, nil
}

// secret returns the Secret with the replicas' certificates.
func (w *world) secret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, w.api.Get(ctx, client.ObjectKey{Namespace: corev1alpha1.SystemNamespace, Name: w.certificates}, secret)
}

// issue returns the data of the Secret, with a certificate authority that is some hours old. If old has an authority,
// the new one is its successor.
func issue(old map[string][]byte) (map[string][]byte, error) {
	var before *pki.Bundle
	ago := 6 * time.Hour
	if old != nil {
		ago = 3 * time.Hour
		without := map[string][]byte{}
		for key, value := range old {
			if key != pki.AuthorityKeys { // Without the key of the authority, the replicas issue a successor.
				without[key] = value
			}
		}
		var err error
		if before, err = pki.Parse(without); err != nil {
			return nil, err
		}
	}
	issuer := pki.Issuer{Names: []string{"127.0.0.1"}, Now: func() time.Time { return time.Now().Add(-ago) }}
	after, _, err := issuer.Renew(before)
	if err != nil {
		return nil, err
	}
	return after.Data()
}
