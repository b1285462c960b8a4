package conversion

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/convert/verify"
)

const (
	// verifyObjects is how many objects are generated for each version, verifyBudget how
	// long it may take to hold the laws against them.
	verifyObjects = 200
	verifyBudget  = 5 * time.Second
	// verifyAgain is when it is tried again to verify what could not be.
	verifyAgain = time.Minute
	// verifyWait is when a policy is looked at again that has to wait for others.
	verifyWait = time.Second
	// verifying is how many policies are verified at a time. Whoever looks at definitions
	// beyond that has other things to do.
	verifying = 2
)

// verifier holds the laws against policies, once for each spec and definition.
type verifier struct {
	busy chan struct{} // Has room for those that are being verified.

	mu       sync.Mutex
	verdicts map[types.UID]verdict // The last one of each policy.
}

// verdict is what came of it.
type verdict struct {
	about  string // Spec and definition.
	seed   int64
	report *verify.Report
	err    error
	until  time.Time // When it is to be tried again; zero for never.
	waits  bool      // Others are being verified.
}

func newVerifier() *verifier {
	return &verifier{busy: make(chan struct{}, verifying), verdicts: map[types.UID]verdict{}}
}

// verify returns the verdict on a policy, which is the same each time: the objects are
// generated from its uid and generation. It does not wait for others that are being
// verified: the verdict says so then, and is to be asked for again.
func (v *verifier) verify(ctx context.Context, p *refractv1alpha1.ConversionPolicy, c compilation) verdict {
	v.mu.Lock()
	known, ok := v.verdicts[p.UID]
	v.mu.Unlock()
	if ok && known.about == c.about && (known.until.IsZero() || time.Now().Before(known.until)) {
		return known
	}
	select {
	case v.busy <- struct{}{}:
		defer func() { <-v.busy }()
	default:
		return verdict{waits: true}
	}
	out, of := verdict{about: c.about, seed: seedOf(p)}, c.program
	if of == nil { // It was compiled for another reason before.
		var err error
		if of, _, err = compile(&p.Spec, c.definition); err != nil {
			return verdict{err: err}
		}
	}
	limited, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
	out.report, out.err = verify.Run(limited, verify.Engine(of.engine), verify.Options{
		Definition: of.definition, Hub: of.policy.Hub(), Versions: of.policy.Versions(), Knowledge: of.policy,
		Seed: uint64(out.seed), Objects: verifyObjects,
	})
	if ctx.Err() != nil {
		return verdict{err: ctx.Err()} // The program ends. Of that nothing is learned.
	}
	reason := out.state().reason
	verifications.WithLabelValues(reason).Inc()
	if reason == reasonUnverified {
		out.until = time.Now().Add(verifyAgain) // There may be more time then.
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.verdicts) >= mostKnown {
		clear(v.verdicts)
	}
	v.verdicts[p.UID] = out
	return out
}

// seedOf returns what the objects of a policy are generated from. It is short enough to
// be typed.
func seedOf(p *refractv1alpha1.ConversionPolicy) int64 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", p.UID, p.Generation)
	return int64(h.Sum32())
}

// good reports whether no law was seen broken.
func (v verdict) good() bool { return v.state().reason == reasonVerified }

// violation returns the first one; nil if there is none.
func (v verdict) violation() *verify.Violation {
	if v.report == nil {
		return nil
	}
	for i := range v.report.Laws {
		if found := v.report.Laws[i].Violations; len(found) > 0 {
			return &found[0]
		}
	}
	return nil
}

// state is what the condition Verified says.
func (v verdict) state() state {
	if v.waits {
		return no(reasonUnverified, "Others are being verified, and this one is after that")
	}
	if v.err != nil {
		return no(reasonUnverified, v.err.Error())
	}
	if broken := v.violation(); broken != nil {
		return no(reasonBroken, brokenLaw(broken))
	}
	if v.report.Checks == 0 {
		return no(reasonUnverified, fmt.Sprintf("Nothing could be checked in %s", verifyBudget))
	}
	text := fmt.Sprintf("No law was seen broken by %d objects", v.report.Objects)
	if !v.report.Complete {
		text += fmt.Sprintf(", which is how far it came in %s", verifyBudget)
	}
	var kept strings.Builder
	for i := range v.report.Versions {
		if of := &v.report.Versions[i]; of.Unconverted > 0 {
			fmt.Fprintf(&kept, "; of %d of %d objects in %s something is kept, as it cannot be converted to %s",
				of.Unconverted, of.Objects, of.Version, of.Lacks)
		}
	}
	return yes(reasonVerified, text+kept.String())
}

// brokenLaw says which law is broken by which object.
func brokenLaw(b *verify.Violation) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %s to %s", b.Law, b.From, b.To)
	if b.Path != "" {
		out.WriteString(", " + b.Path)
	}
	if b.Rule != "" {
		out.WriteString(" (" + b.Rule + ")")
	}
	out.WriteString(": " + b.Message)
	if object, err := yaml.Marshal(b.Object); err == nil && len(b.Object) > 0 {
		out.WriteString("\n" + string(object))
	}
	return out.String()
}

// into writes the verdict into the status of a policy.
func (v verdict) into(p *refractv1alpha1.ConversionPolicy) {
	if c := meta.FindStatusCondition(p.Status.Conditions, refractv1alpha1.ConversionVerified); v.waits && c != nil && c.ObservedGeneration == p.Generation {
		return // What was found out before says more.
	}
	v.state().into(p, refractv1alpha1.ConversionVerified)
	if v.report != nil {
		p.Status.Verification = &refractv1alpha1.ConversionVerification{
			Seed: v.seed, Objects: int64(v.report.Objects), Checks: int64(v.report.Checks),
		}
	}
}
