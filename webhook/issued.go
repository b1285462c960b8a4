package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

	bundle  atomic.Pointer[pki.Bundle]
	changed follow.Signal
}

// Issued are certificates for a server that is reached under these DNS names and IP
// addresses, with an authority of their own. Both lie in a Secret, which all
// replicas share: whichever of them sees first that something is to be renewed
// writes it, and all take it up. Nothing restarts, and no connection is cut. Whoever
// deletes the Secret has both issued anew; one that is damaged is repaired.
//
// A server that is reached by way of a Service is asked for NAME.NAMESPACE.svc. The
// certificates bear the name of the Secret as their common name.
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
		issuer: pki.Issuer{CommonName: secret.Name, Names: names, Now: o.Now}, log: o.Log,
	}
}

// Serving returns what is in the Secret.
func (s *issued) Serving() (*tls.Certificate, error) {
	b := s.bundle.Load()
	if b == nil {
		return nil, fmt.Errorf("the webhook has no certificate yet: see Secret %s", s.key)
	}
	return b.Serving(), nil
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
// stop to serve.
func (s *issued) Run(ctx context.Context) error {
	follow.Object(ctx, s.client, &corev1.SecretList{}, s.key, s.log, s.sync)
	return nil
}

// races is how often somebody else may write the Secret at the same time.
const races = 10

// sync takes up the certificates from the Secret, and renews what is due.
func (s *issued) sync(ctx context.Context) error {
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

// write writes the Secret, if nobody has since it was read.
func (s *issued) write(ctx context.Context, secret *corev1.Secret, data map[string][]byte, missing bool) error {
	secret.Data = data
	if !missing {
		return s.client.Update(ctx, secret)
	}
	secret.ObjectMeta = metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name}
	secret.Type = corev1.SecretTypeTLS
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
