package harness

import (
	"context"
	"encoding/base64"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Access is the address and the credentials of a member for the hub.
type Access struct {
	Endpoint string // A URL.
	CA       []byte // PEM.
	// Cert and Key, or Token.
	Cert, Key []byte // PEM.
	Token     string
}

// Access returns an administrator's direct access to a cluster.
func (e *Env) Access(cluster string) (Access, error) {
	cfg, err := e.Config(cluster)
	if err != nil {
		return Access{}, err
	}
	return Access{Endpoint: cfg.Host, CA: cfg.CAData, Cert: cfg.CertData, Key: cfg.KeyData}, nil
}

// Join makes a cluster a member of the hub with this access, or replaces the access of a member. The member gets the
// labels that refract up gives to the member with the same number.
func (e *Env) Join(ctx context.Context, name string, to Access) error {
	c, err := e.Client("hub")
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
	for i, m := range e.Members {
		if m == name {
			labels["region"], labels["provider"] = regions[i%len(regions)], providers[i%len(providers)]
		}
	}
	for _, o := range []map[string]any{
		{
			"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{
				"name": name, "namespace": corev1alpha1.SystemNamespace,
				"annotations": map[string]any{refractv1alpha1.EndpointAnnotation: to.Endpoint},
			},
			"data": data,
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

// JoinAll joins all members to the hub with direct access.
func (e *Env) JoinAll(ctx context.Context) error {
	for _, m := range e.Members {
		to, err := e.Access(m)
		if err != nil {
			return err
		}
		if err := e.Join(ctx, m, to); err != nil {
			return err
		}
	}
	return nil
}
