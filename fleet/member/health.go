package member

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
	"refract.dev/internal/rescue"
)

// Health is a criterion of a copy's readiness in addition to its status.
type Health struct {
	// Version distinguishes the criterion from earlier ones. It is not zero.
	Version uint32
	// Check returns the reason why the object is not healthy; nil for a healthy object. It neither changes nor keeps
	// the object, and it terminates.
	Check func(object map[string]any) error
}

// judge checks whether a copy that is ready by its status is healthy.
func (d decoder) judge(s *copyEvent, key Key, r *received) {
	if d.health == nil {
		return
	}
	h := d.health(key)
	if h == nil {
		return
	}
	s.Judged = h.Version
	if s.Readiness != refractv1alpha1.ReadinessReady {
		return
	}
	if err := d.check(h, key.GroupResource, r); err != nil {
		s.Readiness, s.ReadinessMessage = refractv1alpha1.ReadinessInProgress, output.Cut(err.Error(), mostMessage)
	}
}

func (d decoder) check(h *Health, of schema.GroupResource, r *received) (err error) {
	defer rescue.To(&err, d.log, "checking the health of a copy", "kind", r.Kind, "namespace", r.Namespace, "name", r.Name)
	u, err := r.whole()
	if err != nil {
		return masked(of, nil, err)
	}
	return h.Check(u.Object)
}

// Judge reads a copy and records whether it is healthy, by the current result of [Set.Health]. A missing copy is not an
// error.
func (c *Copies) Judge(ctx context.Context, key Key) error {
	s := c.watches.store(key.GroupResource)
	if s == nil {
		return nil
	}
	got, err := c.api.getWhole(ctx, s.gvr, key.NamespacedName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	e := c.decode.copyEventOf(got, key.GroupResource)
	if e == nil || e.name != key.NamespacedName {
		return errOther
	}
	d, err := s.onRead(e)
	c.watches.notify(key, d)
	return err
}

// errOther and errOld are for answers about another object, or an older version, than the known copy.
var (
	errOther = errors.New("the cluster has answered with another object")
	errOld   = errors.New("the cluster has answered with an older version of the object")
)
