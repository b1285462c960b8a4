package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Errors that callers of Join, Leave, Release and Approve may branch on.
var (
	ErrJoined         = errors.New("is joined already")
	ErrNotJoined      = errors.New("is not joined")
	ErrNoCRDs         = errors.New("the hub does not serve FederatedClusters")
	ErrLeftSecret     = errors.New("exists already: it may have been left by a cluster of this name")
	ErrNotPending     = errors.New("no deletions are held back")
	ErrPendingChanged = errors.New("the deletions held back have changed meanwhile")
	// ErrUncertain means that the hub may have written the FederatedCluster or its Secret, but has not answered.
	ErrUncertain = errors.New("the hub may have written it all the same")
)

// Join makes the cluster at the address in cfg a member of this name. It creates a Secret with the credentials in the
// system namespace, and the namespace if it is missing. It also creates a FederatedCluster with the labels, the taints,
// and a finalizer that keeps the FederatedCluster until its copies are gone. Join contacts the cluster first, so that
// it writes nothing for an unreachable cluster. The credentials must be a client certificate or a token. If Join fails,
// the hub has neither the Secret nor the FederatedCluster, unless the error is [ErrUncertain].
func Join(
	ctx context.Context, hub client.Client, namespace, name string, cfg *rest.Config, labels map[string]string, taints []corev1.Taint,
) error {
	if err := validName(name); err != nil {
		return err
	}
	data, err := credentials(cfg)
	if err != nil {
		return fmt.Errorf("credentials of cluster %q: %w", name, err)
	}
	address, err := endpoint(cfg.Host)
	if err != nil {
		return fmt.Errorf("server of cluster %q: %w", name, err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Host = address
	uid, err := reach(ctx, name, cfg)
	if err != nil {
		return err
	}
	fc := &corev1alpha1.FederatedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Finalizers: []string{refractv1alpha1.Finalizer}},
		Spec: corev1alpha1.FederatedClusterSpec{
			APIEndpoint:            address,
			Insecure:               cfg.Insecure,
			UseServiceAccountToken: cfg.BearerToken != "",
			SecretRef:              corev1alpha1.LocalSecretReference{Name: name},
			Taints:                 taints,
		},
	}
	switch _, err := Find(ctx, hub, name); {
	case err == nil:
		return fmt.Errorf("cluster %q %w", name, ErrJoined)
	case !errors.Is(err, ErrNotJoined):
		return err
	}
	if err := onlyName(ctx, hub, name, uid); err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := hub.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %q: %w", ns.Name, err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns.Name, Name: name, Annotations: destination(address, cfg.Insecure), Labels: map[string]string{refractv1alpha1.JoinedLabel: "true"},
		},
		Data: data,
	}
	switch err := hub.Create(ctx, secret); {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("secret %s/%s %w", ns.Name, name, ErrLeftSecret)
	case err != nil:
		return uncertain(fmt.Errorf("creating secret %s/%s: %w", ns.Name, name, err))
	}
	if err := Permit(ctx, hub, ns.Name, secret.Name); err != nil {
		return abandon(ctx, hub, secret, err)
	}
	if err := uncertain(hub.Create(ctx, fc)); err != nil {
		err = fmt.Errorf("creating cluster %q: %w", name, err)
		if errors.Is(err, ErrUncertain) {
			return err // Without the Secret, the cluster would have no credentials.
		}
		if left := withdraw(ctx, hub, ns.Name, fc); left != nil {
			err = fmt.Errorf("%w; %w", err, left)
		}
		return abandon(ctx, hub, secret, err)
	}
	if err := own(ctx, hub, secret, fc); err != nil {
		return fmt.Errorf("cluster %q has joined: %w: %w", name, err, ErrUncertain)
	}
	return nil
}

// abandon deletes the Secret after a failed Join, so that a second attempt can create it. Err is the error of the Join.
func abandon(ctx context.Context, hub client.Client, secret *corev1.Secret, err error) error {
	if left := hub.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}); client.IgnoreNotFound(left) != nil {
		return fmt.Errorf("%w; deleting secret %s/%s: %w: %w", err, secret.Namespace, secret.Name, left, ErrUncertain)
	}
	return err
}

// uncertain marks the error of a write that may have been carried out.
func uncertain(err error) error {
	if OutcomeUnknown(err) {
		return fmt.Errorf("%w: %w", err, ErrUncertain)
	}
	return err
}

// Joinable returns an error if a cluster cannot join the hub under this name: the name is in use, the cluster is a
// member already, or it does not accept the credentials. The credentials may be of any kind.
func Joinable(ctx context.Context, hub client.Reader, name string, cfg *rest.Config) error {
	if err := validName(name); err != nil {
		return err
	}
	switch _, err := Find(ctx, hub, name); {
	case err == nil:
		return fmt.Errorf("cluster %q %w", name, ErrJoined)
	case !errors.Is(err, ErrNotJoined):
		return err
	}
	uid, err := reach(ctx, name, cfg)
	if err != nil {
		return err
	}
	return onlyName(ctx, hub, name, uid)
}

func validName(name string) error {
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return fmt.Errorf("cluster name %q: %s", name, msgs[0])
	}
	return nil
}

// reach returns the UID of the cluster, or an error that names the cluster if it does not answer with the credentials.
func reach(ctx context.Context, name string, cfg *rest.Config) (types.UID, error) {
	uid, err := answers(ctx, name, cfg)
	if err != nil {
		return "", fmt.Errorf("reaching cluster %q at %s: %w", name, cfg.Host, err)
	}
	return uid, nil
}

// Find returns the FederatedCluster of this name. The error is [ErrNoCRDs] if the hub lacks the type, and wraps
// [ErrNotJoined] if the FederatedCluster does not exist.
func Find(ctx context.Context, hub client.Reader, name string) (*corev1alpha1.FederatedCluster, error) {
	fc := &corev1alpha1.FederatedCluster{}
	err := hub.Get(ctx, types.NamespacedName{Name: name}, fc)
	switch {
	case meta.IsNoMatchError(err):
		return nil, ErrNoCRDs
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("cluster %q %w", name, ErrNotJoined)
	case err != nil:
		return nil, fmt.Errorf("reading cluster %q: %w", name, err)
	}
	return fc, nil
}

// Leave begins to take the member out of the fleet, and returns at once. The controllers delete its copies, and then
// remove the finalizer of the FederatedCluster. They need the credentials for this, so [Forget] may delete the
// credentials only afterwards.
func Leave(ctx context.Context, hub client.Client, fc *corev1alpha1.FederatedCluster) error {
	if err := hub.Delete(ctx, fc, client.Preconditions{UID: &fc.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting cluster %q: %w", fc.Name, err)
	}
	return nil
}

// ReleaseKept sets whether a leaving member keeps the copies that hold data as its own objects. Otherwise they are
// deleted after an approval: see [refractv1alpha1.ReleaseKeptAnnotation]. It modifies fc.
func ReleaseKept(ctx context.Context, hub client.Client, fc *corev1alpha1.FederatedCluster, release bool) error {
	if (fc.Annotations[refractv1alpha1.ReleaseKeptAnnotation] == "true") == release {
		return nil
	}
	before := fc.DeepCopy()
	if release {
		metav1.SetMetaDataAnnotation(&fc.ObjectMeta, refractv1alpha1.ReleaseKeptAnnotation, "true")
	} else {
		delete(fc.Annotations, refractv1alpha1.ReleaseKeptAnnotation)
	}
	if err := hub.Patch(ctx, fc, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotating cluster %q: %w", fc.Name, err)
	}
	return nil
}

// Release takes the member out of the fleet at once. Its copies stay on the cluster. It modifies fc.
func Release(ctx context.Context, hub client.Client, fc *corev1alpha1.FederatedCluster) error {
	// The controllers restore the finalizer within milliseconds, so this may take several attempts.
	often := wait.Backoff{Steps: 20, Duration: 10 * time.Millisecond, Factor: 1.3, Jitter: 0.5}
	err := retry.RetryOnConflict(often, func() error {
		if err := hub.Get(ctx, client.ObjectKeyFromObject(fc), fc); err != nil {
			return err
		}
		before := fc.DeepCopy()
		if controllerutil.RemoveFinalizer(fc, refractv1alpha1.Finalizer) {
			if err := hub.Patch(ctx, fc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
				return err
			}
		}
		if fc.DeletionTimestamp != nil {
			return nil
		}
		// If the finalizer was restored meanwhile, a deletion would remove the copies.
		return hub.Delete(ctx, fc, client.Preconditions{UID: &fc.UID, ResourceVersion: &fc.ResourceVersion})
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing cluster %q: %w", fc.Name, err)
	}
	return nil
}

// Approve approves only the deletions with this token. The error wraps [ErrNotPending] if no deletions wait, and
// [ErrPendingChanged] if other deletions wait.
func Approve(ctx context.Context, hub client.Client, name, token string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		fc, err := Find(ctx, hub, name)
		if err != nil {
			return err
		}
		switch held := fc.Status.DeletionsHeld; {
		case held == nil:
			return fmt.Errorf("cluster %q: %w", name, ErrNotPending)
		case token == "" || (held.Token != token && held.OthersToken != token):
			return fmt.Errorf("cluster %q: %w", name, ErrPendingChanged)
		}
		before := fc.DeepCopy()
		metav1.SetMetaDataAnnotation(&fc.ObjectMeta, refractv1alpha1.ApproveAnnotation, token)
		if err := hub.Patch(ctx, fc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("annotating cluster %q: %w", name, err)
		}
		return nil
	})
}

// destination returns the annotations that record where the credentials of a Secret may be sent.
func destination(endpoint string, insecure bool) map[string]string {
	a := map[string]string{refractv1alpha1.EndpointAnnotation: endpoint}
	if insecure {
		a[refractv1alpha1.InsecureAnnotation] = "true"
	}
	return a
}

// credentials returns the data of a Secret with these credentials.
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

// answers returns the UID of the cluster, or an error if it does not answer with the credentials.
func answers(ctx context.Context, name string, cfg *rest.Config) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	web, closeIdle, err := httpClient(cfg, newLimits(name))
	if err != nil {
		return "", err
	}
	defer closeIdle()
	clientset, err := kubernetes.NewForConfigAndClient(cfg, web)
	if err != nil {
		return "", err
	}
	ns, err := clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return ns.UID, nil
}
