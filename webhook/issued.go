package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/webhook/follow"
	"refract.dev/webhook/pki"
)

// IssuedOptions say how certificates are issued.
type IssuedOptions struct {
	// CreateNamespace has the Secret's namespace created if it is not there.
	CreateNamespace bool
	// Log is told what was renewed, and what cannot be.
	Log logr.Logger
	// Now tells the time by which certificates are issued; time.Now if nil.
	Now func() time.Time
}

// issued are certificates that we issue and that lie in a Secret.
type issued struct {
	client          client.WithWatch
	key             types.NamespacedName
	createNamespace bool
	issuer          pki.Issuer
	log             logr.Logger
	invalid         error // Why none can be issued for these names.

	bundle  atomic.Pointer[pki.Bundle]
	failure atomic.Pointer[error] // Of the last sync; nil if there was none.
	changed follow.Signal
}

// Issued are certificates for a server that is reached under these DNS names and IP
// addresses, with an authority of their own. Both lie in a Secret, which all
// replicas share: whichever of them sees first that something is to be renewed
// writes it, and all take it up. Nothing restarts, and no connection is cut. Whoever
// deletes the Secret has both issued anew; one that is damaged is repaired.
//
// The Secret is not there yet, or empty, or was written by us, as its annotation
// [IssuedAnnotation] says. One that is somebody else's, such as cert-manager's, is not
// touched: there is no certificate, and the server is not ready and says why. Other
// keys of the Secret, labels and annotations stay as they are.
//
// The names are DNS names, which may begin with *., and IP addresses, without scheme,
// port or path; there is at least one. If not, [New] returns an error, and so does
// Run. A server that is reached by way of a Service is asked for NAME.NAMESPACE.svc.
// The certificates bear the name of the Secret as their common name.
//
// The client reads what is there now, not what a cache remembers, and may get,
// watch, create and update the Secret. How long certificates live, and how a new
// authority takes over from an old one, is said in package
// [refract.dev/webhook/pki].
func Issued(c client.WithWatch, secret types.NamespacedName, names []string, o IssuedOptions) Certificates {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &issued{
		client: c, key: secret, createNamespace: o.CreateNamespace,
		issuer: pki.Issuer{CommonName: secret.Name, Names: slices.Clone(names), Now: o.Now}, log: o.Log, invalid: validNames(names),
	}
}

// validNames returns an error unless these are names that a client may ask for.
func validNames(names []string) error {
	if len(names) == 0 {
		return errors.New("the webhook's certificate is for no name: give it the server's DNS names or IP addresses, such as NAME.NAMESPACE.svc of its Service")
	}
	var errs []error
	for _, name := range names {
		if isName(name) {
			continue
		}
		err := fmt.Errorf("the webhook's certificate cannot be for %q: want a DNS name in lower case, or an IP address", name)
		if host := hostOf(name); isName(host) {
			err = fmt.Errorf("%w, without scheme, port or path: write %q", err, host)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func isName(name string) bool {
	return net.ParseIP(name) != nil || len(validation.IsDNS1123Subdomain(name)) == 0 || len(validation.IsWildcardDNS1123Subdomain(name)) == 0
}

// hostOf returns what is the host of what may be a URL, or HOST:PORT.
func hostOf(name string) string {
	if !strings.Contains(name, "://") {
		name = "//" + name
	}
	u, err := url.Parse(name)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
}

// Serving returns what is in the Secret.
func (s *issued) Serving() (*tls.Certificate, error) {
	if b := s.bundle.Load(); b != nil {
		return b.Serving(), nil
	}
	if err := s.failure.Load(); err != nil {
		return nil, fmt.Errorf("the webhook has no certificate: %w", *err)
	}
	return nil, fmt.Errorf("the webhook has no certificate yet: see Secret %s", s.key)
}

// Trusted returns all authorities in the Secret.
func (s *issued) Trusted() []byte {
	if b := s.bundle.Load(); b != nil {
		return b.Trusted()
	}
	return nil
}

// Changes is sent to when the Secret has other authorities.
func (s *issued) Changes() <-chan struct{} { return s.changed.Listen() }

// Run follows the Secret. Errors of the API server pass, and are no reason to
// stop to serve; names that cannot be are.
func (s *issued) Run(ctx context.Context) error {
	if s.invalid != nil {
		return s.invalid
	}
	follow.Object(ctx, s.client, &corev1.SecretList{}, s.key, s.log, s.sync)
	return nil
}

// races is how often somebody else may write the Secret at the same time.
const races = 10

// sync takes up the certificates from the Secret, and renews what is due. It keeps
// the error for those who ask for a certificate.
func (s *issued) sync(ctx context.Context) error {
	err := s.keep(ctx)
	if err != nil {
		s.failure.Store(&err)
	} else {
		s.failure.Store(nil)
	}
	return err
}

func (s *issued) keep(ctx context.Context) error {
	for range races {
		done, err := s.try(ctx)
		if err != nil {
			return fmt.Errorf("keeping the webhook's certificates in Secret %s: %w", s.key, err)
		}
		if done {
			return nil
		}
	}
	return fmt.Errorf("keeping the webhook's certificates in Secret %s: somebody else writes it all the time", s.key)
}

// try is done unless somebody else was faster.
func (s *issued) try(ctx context.Context) (done bool, err error) {
	secret := &corev1.Secret{}
	err = s.client.Get(ctx, s.key, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return false, err
	}
	var stored *pki.Bundle
	var damage error
	if !missing {
		if err := ours(secret); err != nil {
			return false, err
		}
		stored, damage = pki.Parse(secret.Data)
	}
	renewed, did, err := s.issuer.Renew(stored)
	if err != nil {
		return false, err
	}
	if len(did) == 0 {
		s.take(stored)
		return true, nil
	}
	data, err := renewed.Data()
	if err != nil {
		return false, err
	}
	if err := s.write(ctx, secret, data, missing); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || (!missing && apierrors.IsNotFound(err)) {
			return false, nil
		}
		return false, err
	}
	if damage != nil {
		s.log.Error(damage, "The webhook's Secret was damaged, and what could not be used was issued anew", "secret", s.key)
	}
	s.log.Info("Renewed the webhook's certificates", "secret", s.key, "did", did)
	s.take(renewed)
	return true, nil
}

// IssuedAnnotation is on the Secrets that [Issued] certificates lie in. Whoever wants a
// Secret with something in it to be taken gives it the annotation, with any value: the
// keys tls.crt, tls.key, ca.crt and ca.key of it are then overwritten.
const IssuedAnnotation = "refract.dev/issued"

// ours returns an error unless the Secret is ours to write.
func ours(secret *corev1.Secret) error {
	for _, annotation := range []string{"cert-manager.io/certificate-name", "cert-manager.io/issuer-name"} {
		if _, ok := secret.Annotations[annotation]; ok {
			return fmt.Errorf("it is cert-manager's, as its annotation %s says: name another Secret, or serve with the files of this one", annotation)
		}
	}
	switch secret.Type {
	case "", corev1.SecretTypeOpaque, corev1.SecretTypeTLS:
	default:
		return fmt.Errorf("it is of type %s, and somebody else's: name another Secret", secret.Type)
	}
	if _, ok := secret.Annotations[IssuedAnnotation]; ok || issuedBefore(secret.Data) {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		if len(secret.Data[key]) > 0 {
			return fmt.Errorf("it has a %s that was not issued here, and is somebody else's: name another Secret, or delete this one if nobody needs it", key)
		}
	}
	return nil
}

// issuedBefore reports whether the data was issued by a version of this that had no
// annotation: its authorities bear the time as their serial number.
func issuedBefore(data map[string][]byte) bool {
	authorities, err := cert.ParseCertsPEM(data[pki.Authorities])
	if err != nil || len(data[pki.AuthorityKeys]) == 0 {
		return false
	}
	return !slices.ContainsFunc(authorities, func(c *x509.Certificate) bool {
		_, err := time.Parse("20060102T150405Z", c.Subject.SerialNumber)
		return err != nil || !strings.HasSuffix(c.Subject.CommonName, "-ca")
	})
}

// write writes the Secret, if nobody has since it was read.
func (s *issued) write(ctx context.Context, secret *corev1.Secret, data map[string][]byte, missing bool) error {
	if missing {
		*secret = corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name}, Type: corev1.SecretTypeTLS}
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, data)
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, IssuedAnnotation, "true")
	if !missing {
		return s.client.Update(ctx, secret)
	}
	err := s.client.Create(ctx, secret)
	if !apierrors.IsNotFound(err) || !s.createNamespace {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.key.Namespace}}
	if err := s.client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return errors.Join(fmt.Errorf("creating namespace %s", s.key.Namespace), err)
	}
	return s.client.Create(ctx, secret)
}

// take has the server use a bundle.
func (s *issued) take(b *pki.Bundle) {
	before := s.Trusted()
	s.bundle.Store(b)
	if string(before) != string(b.Trusted()) {
		s.changed.Send()
	}
}
