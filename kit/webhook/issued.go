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

	"refract.dev/kit/webhook/follow"
	"refract.dev/kit/webhook/pki"
)

// IssuedOptions configure [Issued] certificates.
type IssuedOptions struct {
	// CreateNamespace creates the namespace of the Secret if it is missing.
	CreateNamespace bool
	// Log gets messages about renewals and about failures to renew.
	Log logr.Logger
	// Now returns the time for issuing certificates; nil means time.Now.
	Now func() time.Time
}

// issued implements [Certificates] with certificates that the server issues and stores in a Secret.
type issued struct {
	client          client.WithWatch
	key             types.NamespacedName
	createNamespace bool
	issuer          pki.Issuer
	log             logr.Logger
	invalid         error // Set if a certificate cannot have these names.

	bundle  atomic.Pointer[pki.Bundle]
	failure atomic.Pointer[error] // Error of the last sync; nil if it succeeded.
	changed follow.Signal
}

// Issued are certificates for a server with these DNS names and IP addresses, signed by their own authority. The
// certificate and the authority are in a Secret that all replicas share. The first replica that notices that a renewal
// is due writes the Secret, and all replicas load it. Nothing restarts, and no connection is cut. If a user deletes the
// Secret, the server issues a new authority and certificate. It repairs a damaged Secret.
//
// The Secret must be missing, empty, or have the annotation [IssuedAnnotation], which Issued sets. Issued does not
// change a Secret of another owner, such as cert-manager: the server then has no certificate, and its readiness check
// fails with that reason. Other keys of the Secret, labels and annotations stay unchanged.
//
// names are DNS names, which may begin with *., and IP addresses, without scheme, port or path. At least one is
// required. For invalid names, [New] and Run return an error. The name of a server behind a Service is
// NAME.NAMESPACE.svc. The common name of the certificates is the name of the Secret.
//
// The client must read from the API server and not from a cache, and needs get, watch, create and update on the Secret.
// Package [refract.dev/kit/webhook/pki] documents the lifetime of certificates and the change of authorities.
func Issued(c client.WithWatch, secret types.NamespacedName, names []string, o IssuedOptions) Certificates {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &issued{
		client: c, key: secret, createNamespace: o.CreateNamespace,
		issuer: pki.Issuer{CommonName: secret.Name, Names: slices.Clone(names), Now: o.Now}, log: o.Log, invalid: validNames(names),
	}
}

// validNames returns an error unless a certificate can have all names. It requires at least one name.
func validNames(names []string) error {
	if len(names) == 0 {
		return errors.New("the webhook's certificate has no name: set the server's DNS names or IP addresses, such as NAME.NAMESPACE.svc of its Service")
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

// hostOf returns the host of a URL or of HOST:PORT, or "" for other texts.
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

// Serving returns the certificate in the Secret.
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

// Changes receives a value when the authorities in the Secret change.
func (s *issued) Changes() <-chan struct{} { return s.changed.Listen() }

// Run follows the Secret until ctx ends. It returns an error only for invalid names; it retries after errors of the API
// server.
func (s *issued) Run(ctx context.Context) error {
	if s.invalid != nil {
		return s.invalid
	}
	follow.Object(ctx, s.client, &corev1.SecretList{}, s.key, s.log, s.sync)
	return nil
}

// races is the maximum number of attempts to write the Secret if other writers change it at the same time.
const races = 10

// sync loads the certificates from the Secret, and renews them when due. It stores the error for [issued.Serving].
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
	return fmt.Errorf("keeping the webhook's certificates in Secret %s: another client changes it all the time", s.key)
}

// try loads or renews the certificates once. It returns false if another writer changed the Secret in the meantime.
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
		s.log.Error(damage, "The webhook's Secret was damaged, and its unusable parts were issued again", "secret", s.key)
	}
	s.log.Info("Renewed the webhook's certificates", "secret", s.key, "did", did)
	s.take(renewed)
	return true, nil
}

// IssuedAnnotation is the annotation of Secrets with [Issued] certificates. A user can set it, with any value, on a
// Secret with other data. Issued then overwrites the keys tls.crt, tls.key, ca.crt and ca.key.
const IssuedAnnotation = "refract.dev/issued"

// ours returns an error if another program owns the Secret.
func ours(secret *corev1.Secret) error {
	for _, annotation := range []string{"cert-manager.io/certificate-name", "cert-manager.io/issuer-name"} {
		if _, ok := secret.Annotations[annotation]; ok {
			return fmt.Errorf("it belongs to cert-manager, by its annotation %s: name another Secret, or serve with the files of this one", annotation)
		}
	}
	switch secret.Type {
	case "", corev1.SecretTypeOpaque, corev1.SecretTypeTLS:
	default:
		return fmt.Errorf("it is of type %s, and has another owner: name another Secret", secret.Type)
	}
	if _, ok := secret.Annotations[IssuedAnnotation]; ok || issuedBefore(secret.Data) {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		if len(secret.Data[key]) > 0 {
			return fmt.Errorf("it has a %s that was not issued here: name another Secret, or delete this one if it is unused", key)
		}
	}
	return nil
}

// issuedBefore reports whether an earlier version of Refract issued the data. That version did not set the annotation,
// but the serial numbers in the subjects of its authorities are times.
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

// write creates or updates the Secret. It returns a conflict error if another writer has changed the Secret since it
// was read.
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

// take makes the server use the bundle.
func (s *issued) take(b *pki.Bundle) {
	before := s.Trusted()
	s.bundle.Store(b)
	if string(before) != string(b.Trusted()) {
		s.changed.Send()
	}
}
