package migration

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"refract.dev/internal/rescue"
)

const (
	// workers is how many objects are being rewritten at the same time.
	workers = 8
	// rewritePage is after how many objects it is written down how far the migration is.
	rewritePage = 200
	// mostPasses is how often objects are looked for that were written meanwhile.
	mostPasses = 10
	// mostConflicts is how often an object is read again that somebody else changes.
	mostConflicts = 3
	// mostInARow is how many objects may fail one after the other.
	mostInARow = 50
)

// errHopeless ends a pass in which one object after the other fails.
var errHopeless = errors.New("one object after the other fails")

// errGone says that an object is not there any more, and not only for one server.
var errGone = errors.New("it is gone")

// look is an object as it was looked at last.
type look struct {
	version   fingerprint // Of its resourceVersion then. As long as it has that it is stored as wanted.
	rewritten bool
}

// fingerprint stands for a text: there can be millions of objects to be remembered.
type fingerprint [16]byte

func fingerprintOf(text string) fingerprint {
	sum := sha256.Sum256([]byte(text))
	return fingerprint(sum[:16])
}

// rewriting is what is known while objects are being rewritten.
type rewriting struct {
	*migration

	mu     sync.Mutex
	seen   map[fingerprint]look // By UID.
	gone   map[fingerprint]bool // By UID.
	failed map[fingerprint]bool // By UID.
	// inARow is how many have failed since one was rewritten.
	inARow int
	// Of the current pass: its phase, how many objects it has done with, how often it has
	// changed what is stored, how many were gone, and whether one of them was gone before.
	phase                Phase
	done, writes, missed int
	goneTwice            bool
}

// rewrite looks at every object until nothing is found that has to be rewritten. The
// first pass leaves out what an interrupted run has done, and the second does not:
// nobody knows who has written to it since.
func (m *migration) rewrite(ctx context.Context, from *mark) error {
	r := &rewriting{migration: m, seen: map[fingerprint]look{}, gone: map[fingerprint]bool{}, failed: map[fingerprint]bool{}}
	after, calm := "", false
	if from != nil {
		after = from.After
	}
	for {
		m.result.Passes++
		err := r.pass(ctx, after)
		r.count()
		hopeless := errors.Is(err, errHopeless)
		if err != nil && !hopeless {
			return err
		}
		if m.result.Failed > 0 {
			m.result.Outcome = Failed
			m.result.GaveUp = hopeless
		}
		var settled bool
		settled, calm = r.settled(after, calm)
		switch {
		case m.DryRun:
			return nil
		case m.result.Outcome != "":
			return m.definition.annotate(ctx, nil)
		case settled:
			return nil
		case m.result.Passes >= mostPasses:
			return fmt.Errorf("%s: version %s: %w: %d rewritten and %d gone in pass %d", m.Name, m.To, ErrUnsettled, r.writes, r.missed, m.result.Passes)
		case m.result.Passes > 2: // Whoever is behind may need time.
			if err := pause(ctx, m.Settle); err != nil {
				return err
			}
		}
		after = ""
	}
}

// settled reports whether the pass that has ended, which began after the object, was the
// last: nothing is stored in another version. That an object was gone is only believed
// when it does not come back, so one pass in which any was gone is not enough; but where
// objects are deleted all the time none would ever be without, so the second such pass
// is if no object was gone in it that had been gone before. It also reports whether
// the pass wrote nothing, which it is told of the one before.
func (r *rewriting) settled(after string, before bool) (settled, calm bool) {
	calm = after == "" && r.writes == 0
	return calm && (r.missed == 0 || before && !r.goneTwice), calm
}

// pass looks at every object after one of this name that is not known to be stored as
// wanted.
func (r *rewriting) pass(ctx context.Context, after string) error {
	r.phase, r.done, r.writes, r.missed, r.goneTwice = Rewriting, 0, 0, 0, false
	first := r.result.Passes == 1
	if !first {
		r.phase = Verifying
	}
	before, token := 0, ""
	for {
		page, err := r.list(ctx, r.To, token, rewritePage)
		if err != nil {
			return r.listing(r.To, err)
		}
		before += len(page.Items)
		r.total = before + remaining(page)
		due := r.due(page.Items, after)
		r.done = before - len(due)
		r.tell()
		if err := r.page(ctx, due); err != nil {
			return err
		}
		if err := r.storage.still(ctx); err != nil {
			return err
		}
		if n := len(page.Items); first && !r.DryRun && n > 0 && keyOf(&page.Items[n-1]) > after {
			if err := r.definition.save(ctx, &mark{To: r.To, Generation: r.definition.crd.Generation, After: keyOf(&page.Items[n-1])}); err != nil {
				return err
			}
		}
		if token = page.Continue; token == "" {
			return nil
		}
	}
}

// tell says how far the pass is.
func (r *rewriting) tell() {
	r.Progress(Progress{Phase: r.phase, Done: r.done, Total: r.total, Failed: len(r.failed)})
}

// due returns the objects that have to be looked at.
func (r *rewriting) due(items []metav1.PartialObjectMetadata, after string) []metav1.PartialObjectMetadata {
	var due []metav1.PartialObjectMetadata
	for i := range items {
		o := &items[i]
		was, ok := r.seen[fingerprintOf(string(o.UID))]
		if (after != "" && keyOf(o) <= after) || (ok && was.version == fingerprintOf(o.ResourceVersion)) {
			continue
		}
		due = append(due, *o)
	}
	return due
}

// page looks at all of these.
func (r *rewriting) page(ctx context.Context, due []metav1.PartialObjectMetadata) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range due {
		group.Go(func() error { return r.one(ctx, &due[i]) })
	}
	return group.Wait()
}

// one looks at an object, and notes what came of it. It returns an error if there is no
// sense in going on.
func (r *rewriting) one(ctx context.Context, o *metav1.PartialObjectMetadata) error {
	now, wrote, err := r.touch(ctx, o)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && away(err): // Every other would fare the same.
		return fmt.Errorf("rewriting %s of %s: %w", keyOf(o), r.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	defer r.tell()
	id := fingerprintOf(string(o.UID))
	switch {
	case errors.Is(err, errGone):
		r.missed++
		r.goneTwice = r.goneTwice || r.gone[id]
		r.gone[id] = true
		delete(r.seen, id)
	case err != nil:
		r.failed[id] = true
		r.result.fail(keyOf(o), err)
		if r.inARow++; r.inARow >= mostInARow {
			return errHopeless
		}
		return nil
	default:
		is := fingerprintOf(string(now.UID))
		delete(r.gone, is)
		r.seen[is] = look{version: fingerprintOf(now.ResourceVersion), rewritten: wrote || r.seen[is].rewritten}
		if wrote {
			r.writes++
		}
	}
	r.inARow = 0
	return nil
}

// touch has the API server encode an object anew. It returns the object as it is then,
// and whether it may have been stored in another way. If somebody else changes it all
// the time the last patch asks for no certain state of it: it is written on top of any,
// and counts as a change, as nobody knows what it met. The error is errGone if there
// is no such object.
func (r *rewriting) touch(ctx context.Context, o *metav1.PartialObjectMetadata) (now *metav1.PartialObjectMetadata, wrote bool, err error) {
	defer rescue.To(&err, ctrl.LoggerFrom(ctx), "rewriting an object", "object", keyOf(o))
	for range mostConflicts {
		now, err = r.patch(ctx, o, map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion})
		if err == nil {
			return now, now.ResourceVersion != o.ResourceVersion, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return nil, false, err
		}
		if o, err = r.get(ctx, o); err != nil {
			return nil, false, err
		}
	}
	now, err = r.patch(ctx, o, map[string]any{})
	if apierrors.IsNotFound(err) {
		if _, is := r.get(ctx, o); is != nil {
			err = is
		}
	}
	if err != nil {
		return nil, false, err
	}
	return now, now.ResourceVersion != o.ResourceVersion, nil
}

// get reads an object as etcd has it, and not a cache: no resourceVersion is asked for.
// The error is errGone if the API server says that this object is not there.
//
// Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
func (r *rewriting) get(ctx context.Context, o *metav1.PartialObjectMetadata) (*metav1.PartialObjectMetadata, error) {
	var now *metav1.PartialObjectMetadata
	err := r.pace.persist(ctx, func(ctx context.Context) (err error) {
		now, err = r.metadata.Resource(r.gvr(r.To)).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
		return r.known(o, err)
	})
	if apierrors.IsNotFound(err) && !errors.Is(err, errUnknown) {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	return now, err
}

// known returns the error of a request for an object, as errUnknown if it says that
// something is not found but not that it is this object: such is the answer of an API
// server that does not serve the version, or of something in between.
func (r *rewriting) known(o *metav1.PartialObjectMetadata, err error) error {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return err
	}
	of, resource := status.Status().Details, r.gvr(r.To)
	if of != nil && of.Name == o.Name && of.Group == resource.Group && of.Kind == resource.Resource && !apierrors.IsUnexpectedServerError(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnknown, err)
}

// patch sends a merge patch that changes nothing.
func (r *rewriting) patch(ctx context.Context, o *metav1.PartialObjectMetadata, meta map[string]any) (*metav1.PartialObjectMetadata, error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": r.definition.crd.Spec.Group + "/" + r.To, "kind": r.definition.crd.Spec.Names.Kind, "metadata": meta,
	})
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: fieldManager}
	if r.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if err := r.limit.Wait(ctx); err != nil {
		return nil, err
	}
	var now *metav1.PartialObjectMetadata
	err = r.pace.persist(ctx, func(ctx context.Context) (err error) {
		now, err = r.metadata.Resource(r.gvr(r.To)).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body, options)
		return r.known(o, err)
	})
	return now, err
}

// count sums up.
func (r *rewriting) count() {
	rewritten := 0
	for _, l := range r.seen {
		if l.rewritten {
			rewritten++
		}
	}
	r.result.Rewritten, r.result.Unchanged, r.result.Gone = rewritten, len(r.seen)-rewritten, len(r.gone)
	r.result.Objects = len(r.seen) + len(r.gone) + r.result.Failed
}
