package member

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// Facts that callers of Join and Unjoin may branch on.
var (
	ErrJoined    = errors.New("is joined already")
	ErrNotJoined = errors.New("is not joined")
	ErrNoCRDs    = errors.New("the hub does not know FederatedClusters")
)

// Join makes the cluster that cfg leads to a member under the name: a Secret
// with the credentials in the system namespace, which is created if need be, and
// a FederatedCluster. The cluster is asked first, so that nothing is written
// for one that cannot be reached. The credentials must be a client certificate
// or a token.
func Join(ctx context.Context, hub client.Client, name string, cfg *rest.Config, labels map[string]string) error {
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return fmt.Errorf("cluster name %q: %s", name, msgs[0])
	}
	data, err := credentials(cfg)
	if err != nil {
		return fmt.Errorf("credentials of cluster %q: %w", name, err)
	}
	if err := answers(ctx, cfg); err != nil {
		return fmt.Errorf("reaching cluster %q at %s: %w", name, cfg.Host, err)
	}
	fc := &corev1alpha1.FederatedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1alpha1.FederatedClusterSpec{
			APIEndpoint:            cfg.Host,
			Insecure:               cfg.Insecure,
			UseServiceAccountToken: cfg.BearerToken != "",
			SecretRef:              corev1alpha1.LocalSecretReference{Name: name},
		},
	}
	err = hub.Get(ctx, types.NamespacedName{Name: name}, &corev1alpha1.FederatedCluster{})
	switch {
	case err == nil:
		return fmt.Errorf("cluster %q %w", name, ErrJoined)
	case meta.IsNoMatchError(err):
		return ErrNoCRDs
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading cluster %q: %w", name, err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.SystemNamespace}}
	if err := hub.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %q: %w", ns.Name, err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}, Data: data}
	if err := hub.Create(ctx, secret); err != nil {
		return fmt.Errorf("creating secret %s/%s: %w", ns.Name, name, err)
	}
	if err := hub.Create(ctx, fc); err != nil {
		// Leave nothing behind that a second try would stumble over.
		return errors.Join(fmt.Errorf("creating cluster %q: %w", name, err), client.IgnoreNotFound(hub.Delete(context.WithoutCancel(ctx), secret)))
	}
	return nil
}

// Unjoin takes the cluster out of the fleet. What was placed on it stays there.
func Unjoin(ctx context.Context, hub client.Client, name string) error {
	fc := &corev1alpha1.FederatedCluster{}
	err := hub.Get(ctx, types.NamespacedName{Name: name}, fc)
	switch {
	case meta.IsNoMatchError(err):
		return ErrNoCRDs
	case apierrors.IsNotFound(err):
		return fmt.Errorf("cluster %q %w", name, ErrNotJoined)
	case err != nil:
		return fmt.Errorf("reading cluster %q: %w", name, err)
	}
	if err := hub.Delete(ctx, fc); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting cluster %q: %w", name, err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: corev1alpha1.SystemNamespace, Name: fc.Spec.SecretRef.Name}}
	if err := hub.Delete(ctx, secret); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// credentials returns the data of the Secret.
func credentials(cfg *rest.Config) (map[string][]byte, error) {
	if cfg.ExecProvider != nil || cfg.AuthProvider != nil {
		return nil, fmt.Errorf("%w: they come from a program that runs on this machine; want a client certificate or a token", ErrCredentials)
	}
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	if len(cfg.CAData) > 0 {
		data[corev1alpha1.SecretCertificateAuth] = cfg.CAData
	}
	switch {
	case cfg.BearerToken != "":
		data[corev1alpha1.SecretServiceAccountToken] = []byte(cfg.BearerToken)
	case len(cfg.CertData) > 0 && len(cfg.KeyData) > 0:
		data[corev1alpha1.SecretClientCertificate] = cfg.CertData
		data[corev1alpha1.SecretClientKey] = cfg.KeyData
	default:
		return nil, fmt.Errorf("%w: want a client certificate or a token", ErrCredentials)
	}
	return data, nil
}

// answers returns an error unless the cluster answers to the credentials.
func answers(ctx context.Context, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = probeTimeout
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	_, err = clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	return err
}
