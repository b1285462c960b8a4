package migration

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
)

const (
	// surveyPage is the maximum number of objects in a page. An API server converts all objects of a page before it
	// sends the answer.
	surveyPage = 500
	// mostNamed is the maximum number of failed objects in the result.
	mostNamed = 100
)

// survey reads and counts all objects in the wanted version. It records the objects that cannot be read. If there are
// any, the migration is refused.
func (m *migration) survey(ctx context.Context) error {
	read, limit, token := 0, int64(surveyPage), ""
	last := ""
	for {
		page, err := m.list(ctx, m.To, token, limit)
		if err == nil {
			m.lacking(page.Items)
		}
		if unreadable(err) {
			page, err = m.named(ctx, token, limit, err)
			if unreadable(err) && limit > 1 {
				limit = max(1, limit/8) // A smaller page may have only objects that are readable in one version.
				continue
			}
		}
		if unreadable(err) {
			m.unread(beyond(last), err)
			break // The token of the next page is unknown.
		}
		if err != nil {
			return m.listing(m.To, err)
		}
		read += len(page.Items)
		m.total = read + remaining(page)
		m.Progress(Progress{Phase: Reading, Done: read, Total: m.total, Failed: m.result.Failed})
		if n := len(page.Items); n > 0 {
			last = keyOf(&page.Items[n-1])
		}
		if token = page.Continue; token == "" || m.result.Failed >= mostNamed {
			break
		}
		limit = min(2*limit, surveyPage)
	}
	m.result.Objects = read
	if m.result.Failed > 0 {
		m.result.Outcome = Refused
	}
	return nil
}

// lacking records the objects with a part that cannot be converted to the wanted version. Such a part is kept in an
// annotation, and no conversion would read it after the removal of the other version.
func (m *migration) lacking(objects []metav1.PartialObjectMetadata) {
	for i := range objects {
		what, lacks := objects[i].Annotations[refractv1alpha1.UnconvertedAnnotation]
		if lacks && m.result.Failed < mostNamed {
			m.result.fail(keyOf(&objects[i]), fmt.Errorf("a part of it cannot be converted to version %s: %s", m.To, output.Cut(what, mostLacking)))
		}
	}
}

// mostLacking is the maximum size in bytes of the description of a missing part.
const mostLacking = 512

// named reads a page in another version, and records the objects of the page that cannot be read in the wanted version.
// It returns the page. If no version can read the page, it returns because, the error for the wanted version.
func (m *migration) named(ctx context.Context, token string, limit int64, because error) (*metav1.PartialObjectMetadataList, error) {
	for i := range m.definition.crd.Spec.Versions {
		v := &m.definition.crd.Spec.Versions[i]
		if !v.Served || v.Name == m.To {
			continue
		}
		page, err := m.list(ctx, v.Name, token, limit)
		if unreadable(err) {
			continue
		}
		if err != nil {
			return nil, m.listing(v.Name, err)
		}
		for j := range page.Items {
			if err := m.tryRead(ctx, &page.Items[j]); err != nil {
				return nil, err
			}
			if m.result.Failed >= mostNamed {
				break
			}
		}
		return page, nil
	}
	return nil, because
}

// tryRead reads an object in the wanted version. It records an object that cannot be read.
func (m *migration) tryRead(ctx context.Context, o *metav1.PartialObjectMetadata) error {
	ctx, cancel := context.WithTimeout(ctx, m.pace.request)
	defer cancel()
	_, err := m.metadata.Resource(m.gvr(m.To)).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case unreadable(err):
		m.unread(keyOf(o), err)
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("reading %s of %s: %w", keyOf(o), m.Name, err)
	}
	return nil
}

// list returns a page. If the token has expired, list continues with the token in the error, which lists the current
// objects.
func (m *migration) list(ctx context.Context, version, token string, limit int64) (*metav1.PartialObjectMetadataList, error) {
	for {
		var page *metav1.PartialObjectMetadataList
		err := m.pace.persist(ctx, func(ctx context.Context) (err error) {
			page, err = m.metadata.Resource(m.gvr(version)).List(ctx, metav1.ListOptions{Limit: limit, Continue: token})
			return err
		})
		anew, ok := continued(err)
		if !ok || anew == token {
			return page, err
		}
		token = anew
	}
}

// continued returns the token in an error about an expired token.
//
// Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
func continued(err error) (token string, ok bool) {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return "", false
	}
	token = status.Status().Continue
	return token, token != ""
}

func (m *migration) listing(version string, err error) error {
	return fmt.Errorf("listing the objects of %s in version %s: %w", m.Name, version, err)
}

// unreadable reports whether the server could not read an object or a page. This includes a 429 after all retries.
func unreadable(err error) bool {
	return err != nil && (failing(err) && !away(err) || apierrors.IsTooManyRequests(err))
}

func (m *migration) unread(object string, err error) {
	m.result.fail(object, fmt.Errorf("it cannot be read in version %s: %w", m.To, err))
}

// beyond describes an object without a known name by the object before it.
func beyond(last string) string {
	if last == "" {
		return "(the first object)"
	}
	return fmt.Sprintf("(the object after %s)", last)
}

// remaining returns the number of objects after the page; zero if the server does not report it.
func remaining(page *metav1.PartialObjectMetadataList) int {
	if page.RemainingItemCount == nil {
		return 0
	}
	return int(*page.RemainingItemCount)
}

// keyOf returns the key of an object. Keys are ordered like the lists of an API server.
func keyOf(o *metav1.PartialObjectMetadata) string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}
