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

	"refract.dev/internal/webhook/pki"
)

// SecretName is that of the Secret, in the system namespace, with the webhook's
// authority and certificate. Whoever deletes it has both issued anew.
const SecretName = "refract-webhook" //nolint:gosec // It is a name.

// issued are certificates that we issue and that lie in a Secret.
type issued struct {
	client client.WithWatch
	key    types.NamespacedName
	issuer pki.Issuer
	log    logr.Logger

	bundle  atomic.Pointer[pki.Bundle]
	changed chan struct{}
}

func newIssued(c client.WithWatch, namespace string, names []string, now func() time.Time, log logr.Logger) *issued {
	return &issued{
		client: c, key: types.NamespacedName{Namespace: namespace, Name: SecretName},
		issuer: pki.Issuer{Names: names, Now: now}, log: log, changed: make(chan struct{}, 1),
	}
}

func (s *issued) serving() (*tls.Certificate, error) {
	b := s.bundle.Load()
	if b == nil {
		return nil, fmt.Errorf("the webhook has no certificate yet: see Secret %s", s.key)
	}
	return b.Serving(), nil
}

func (s *issued) trusted() []byte {
	if b := s.bundle.Load(); b != nil {
		return b.Trusted()
	}
	return nil
}

func (s *issued) changes() <-chan struct{} { return s.changed }

// run follows the Secret. Errors of the API server pass, and are no reason to
// stop to serve.
func (s *issued) run(ctx context.Context) error {
	follow(ctx, s.client, &corev1.SecretList{}, s.key, s.log, s.sync)
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
	if !apierrors.IsNotFound(err) {
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
	before := s.trusted()
	s.bundle.Store(b)
	if string(before) != string(b.Trusted()) {
		poke(s.changed)
	}
}

// poke sends to a channel of one element, unless it is full: who receives then
// will see what there is.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
