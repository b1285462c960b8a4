package installation

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestElsewhere checks that a part whose Lease is being renewed counts as running, even if the clock of its machine is
// wrong.
func TestElsewhere(t *testing.T) {
	holder := "host"
	for name, tc := range map[string]struct {
		reason string
		holder *string
		behind time.Duration // How much the clock of the holder is slow.
		renews bool
		want   bool
	}{
		"Runs":     {"The Lease was renewed recently.", &holder, 0, true, true},
		"Ahead":    {"The Lease was renewed recently by a clock that is ahead.", &holder, -10 * time.Minute, true, true},
		"Behind":   {"The Lease is renewed while it is watched.", &holder, 10 * time.Minute, true, true},
		"Crashed":  {"The Lease is not renewed while it is watched.", &holder, 10 * time.Minute, false, false},
		"LongAgo":  {"A difference of a day is not caused by clocks.", &holder, 24 * time.Hour, false, false},
		"Released": {"The Lease was released.", new(""), 0, false, false},
		"None":     {"There is no Lease.", nil, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := fake.NewClientBuilder()
			if tc.holder != nil {
				b = b.WithObjects(&coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: "refract", Name: Propagation.Lease()},
					Spec: coordinationv1.LeaseSpec{
						HolderIdentity: tc.holder, LeaseDurationSeconds: new(int32(1)), RenewTime: &metav1.MicroTime{Time: time.Now().Add(-tc.behind)},
					},
				})
			}
			looks := 0
			c := b.WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					err := c.Get(ctx, key, o, opts...)
					if lease, is := o.(*coordinationv1.Lease); err == nil && is && tc.renews {
						lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(time.Duration(looks) * time.Second)
						looks++
					}
					return err
				},
			}).Build()
			got, err := renewed(t.Context(), c, "refract", Propagation)
			if err != nil || got != tc.want {
				t.Errorf("%s\nwant it to run: %t, got %t, %v", tc.reason, tc.want, got, err)
			}
		})
	}
}
