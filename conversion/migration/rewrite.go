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
	// workers is the number of concurrent patches.
	workers = 8
	// rewritePage is the number of objects in a page. The progress is saved after each page.
	rewritePage = 200
	// mostPasses is the maximum number of passes over all objects.
	mostPasses = 10
	// mostConflicts is the maximum number of patches with preconditions for one object. After that many conflicts,
	// other writers seem to change the object all the time.
	mostConflicts = 3
	// mostInARow is the number of failures, one after the other, that ends a pass.
	mostInARow = 50
)

// errHopeless ends a pass after mostInARow failures in a row.
var errHopeless = errors.New("too many objects fail in a row")

// errGone means that an object no longer exists. The API server has read etcd, and not its cache.
var errGone = errors.New("it is gone")

// look is the result of the last visit of an object.
type look struct {
	version   fingerprint // Fingerprint of the resourceVersion after the visit. While the object has it, it is stored in the wanted version.
	rewritten bool
}

// fingerprint is a hash of a text. A hash needs less memory than the text, and there can be millions of objects.
type fingerprint [16]byte

func fingerprintOf(text string) fingerprint {
	sum := sha256.Sum256([]byte(text))
	return fingerprint(sum[:16])
}

// rewriting is the state of the rewriting of all objects.
type rewriting struct {
	*migration

	mu     sync.Mutex
	seen   map[fingerprint]look // By UID.
	gone   map[fingerprint]bool // By UID.
	failed map[fingerprint]bool // By UID.
	// inARow is the number of failures since the last success.
	inARow int
	// State of the current pass: the phase, and the numbers of finished, rewritten and deleted objects. goneTwice is
	// true if the pass found an object deleted that an earlier pass had already found deleted.
	phase                Phase
	done, writes, missed int
	goneTwice            bool
}

// rewrite visits every object, until a pass finds nothing to rewrite. The first pass skips the objects that an
// interrupted run has visited. The second pass visits them, because other writers may have stored them in the old
// version since then.
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
		case m.result.Passes > 2: // An API server that has not read the new definition yet may need time.
			if err := pause(ctx, m.Settle); err != nil {
				return err
			}
		}
		after = ""
	}
}

// settled reports whether the last pass proves that no object is stored in another version. calm is true if the pass
// visited all objects (after is empty) and rewrote none; before is the value of calm for the previous pass. A calm pass
// without deleted objects is a proof. A calm pass with deleted objects is not, because an object that was reported as
// deleted may appear again in the next list. But some objects may be deleted in every pass. So two consecutive calm
// passes are a proof if the second one found no object deleted that an earlier pass had already found deleted.
func (r *rewriting) settled(after string, before bool) (settled, calm bool) {
	calm = after == "" && r.writes == 0
	return calm && (r.missed == 0 || before && !r.goneTwice), calm
}

// pass visits every object after the given key. It skips objects that are known to be stored in the wanted version.
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

// tell reports the progress of the pass.
func (r *rewriting) tell() {
	r.Progress(Progress{Phase: r.phase, Done: r.done, Total: r.total, Failed: len(r.failed)})
}

// due returns the objects of a page that must be visited.
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

// page visits these objects concurrently.
func (r *rewriting) page(ctx context.Context, due []metav1.PartialObjectMetadata) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range due {
		group.Go(func() error { return r.one(ctx, &due[i]) })
	}
	return group.Wait()
}

// one visits an object and records the result. If it returns an error, the pass ends.
func (r *rewriting) one(ctx context.Context, o *metav1.PartialObjectMetadata) error {
	now, wrote, err := r.touch(ctx, o)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && away(err): // Requests for other objects would fail in the same way.
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

// touch makes the API server encode an object again. It returns the new object. wrote is true if the object may have
// been stored in another version before. After mostConflicts conflicts, touch sends a patch without preconditions. Then
// it is unknown which version the object had, so wrote is true if the resourceVersion has changed. The error wraps
// errGone if the object does not exist.
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

// get reads an object. It sends no resourceVersion, so the API server reads etcd and not its cache. The error wraps
// errGone if the API server reports that this object does not exist.
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

// known returns the error of a request for an object. If the error is a 404 that does not name this object, known
// returns errUnknown: the answer comes from an API server that does not serve the version, or from a proxy.
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

// patch sends a merge patch without changes. meta has the preconditions.
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

// count updates the numbers in the result.
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
