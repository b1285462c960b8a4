package simulate

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// promise is the text of a promise to users.
type promise struct {
	// Says is the promise. Where is the document that contains it.
	Says, Where string
}

// promises are the checked promises, by the names of their invariants.
//
//nolint:gochecknoglobals // It is a constant.
var promises = map[string]promise{
	withoutCause: {
		"A copy goes only if its object was deleted on the hub, or is no longer placed there; where many are to " +
			"go at once, none goes until somebody approves.",
		"docs/guide/approve-deletions-and-moves.md",
	},
	volumeDeleted: {
		"The copy of an object that holds data is deleted without approval for one reason: a user deleted exactly " +
			"that object on the hub.",
		"docs/guide/what-travels-and-what-stays.md",
	},
	unreleased: {
		"A cluster gets changed content when its wave has begun, a wave begins when those before it are done, and " +
			"a Manual one when somebody has approved it for this change.",
		"docs/guide/release-safely.md",
	},
	haltedOrReverted: {
		"After Halt no further cluster gets the change. After Revert all clusters get back what they had.",
		"docs/guide/release-safely.md",
	},
	twoWriters: {
		"A member never has two writers: a replica that cannot renew its Lease stops writing before another takes over.",
		"docs/guide/survive-failures.md",
	},
	oldDecision: {
		"A cluster does not get content that is older than what it has.",
		"docs/design/decide-apply-report.md",
	},
	differsFromRender: {
		"Each cluster has what refract render shows for it, or the hub's status says why not.",
		"docs/guide/override-policies.md",
	},
	wrongStatus: {
		"What the hub says of objects, clusters and rollouts is so.",
		"docs/guide/see-your-fleet.md",
	},
	tooManyRequests: {
		"Requests are bounded, and where nothing changes nothing is written.",
		"docs/performance.md",
	},
	stuck: {
		"What was begun ends, by itself: deletions, leaving clusters, restarts and retries.",
		"docs/guide/operate.md",
	},
	beyondBudget: {
		"Pods are recreated for a policy only if they lack what it injects and it lets its rollout go on (with " +
			"the strategy Manual: when somebody has approved its present content), and at most maxConcurrent workloads at a time.",
		"docs/guide/inject-services.md",
	},
	policyStatus: {
		"The status of a policy counts the pods that lack what it injects.",
		"docs/guide/operate-injection.md",
	},
	twoInjectors: {
		"One replica alone looks after the pods that are there: it holds the Lease refract-injection.",
		"docs/guide/operate-injection.md",
	},
}

// actor describes the actors whose names match a pattern.
type actor struct {
	is   *regexp.Regexp
	says string
}

// actors are the actors of stories, in the order of the legend.
//
//nolint:gochecknoglobals // It is a constant.
var actors = []actor{
	{regexp.MustCompile(`^` + atStart + `$`), "nobody: what was there before Refract was started"},
	{regexp.MustCompile(`^` + passing + `$`), "nobody: Refract and the clusters have time"},
	{regexp.MustCompile(`^` + fault + `$`), "what the simulation breaks or mends: networks, API servers, machines, clocks"},
	{regexp.MustCompile(`^` + atEnd + `$`), "the simulation, which looks at all that is there when the history is over"},
	{regexp.MustCompile(`^` + operator + `$`), "the person who runs the hub and Refract"},
	{regexp.MustCompile(`^` + tenantOf["shop"] + `$`), "a user of the hub, whose Namespace is shop"},
	{regexp.MustCompile(`^` + tenantOf["team"] + `$`), "a user of the hub, whose Namespace is team"},
	{regexp.MustCompile(`^` + baker + `$`), "a user of the clusters, who may change copies there; Namespace bakery of eu-1 is hers, and no copy is in it"},
	{regexp.MustCompile(`^(flux|argocd|gitops)$`), "tools on a cluster that write what is in a repository"},
	{regexp.MustCompile(`admin$|^operator of `), "people who run a cluster"},
	{regexp.MustCompile(`^(the cluster|hub'|[a-z]{2}-\d')s?`), "Kubernetes' own programs there and the load of the pods, as the simulation models them"},
}

// Story prints a run for a reader who knows Kubernetes: all actions of people, all faults, and Refract's writes to the
// objects of the violation. whole is the original run; r may be a run of a shorter plan.
func Story(w io.Writer, seed uint64, whole, r *Result) {
	t := teller{Result: r}
	if r.Violation != nil {
		t.objects = mentions(r.Violation.Message)
		if slices.Contains([]string{beyondBudget, policyStatus, twoInjectors}, r.Violation.Invariant) {
			t.objects = append(t.objects, mention{kind: injectionKind.name})
		}
	}
	t.choose()
	var b strings.Builder
	t.head(&b, seed, whole)
	t.legend(&b)
	fmt.Fprintf(&b, "\nline  step    min:sec  what happens\n")
	for _, l := range t.lines {
		b.WriteString(l.text)
	}
	b.WriteString("\n")
	t.verdict(&b)
	t.leftOut(&b)
	_, _ = io.WriteString(w, b.String()) // The output is only for people.
}

// mention is an object that is named in a text. An empty name or namespace stands for any.
type mention struct{ kind, namespace, name string }

// is reports whether two mentions match.
func (m mention) is(o mention) bool {
	return m.kind == o.kind && (m.name == o.name || m.name == "") && (m.namespace == o.namespace || m.namespace == "" || o.namespace == "")
}

// subject returns the first mention in a text.
func subject(text string) mention {
	if all := mentions(text); len(all) > 0 {
		return all[0]
	}
	return mention{}
}

func (m mention) isIn(all []mention) bool {
	return slices.ContainsFunc(all, func(of mention) bool { return of.is(m) })
}

func (m mention) String() string {
	return strings.TrimSuffix(strings.TrimSuffix(m.kind+" "+m.namespace, " ")+pickBy(m.namespace == "", " ", "/")+m.name, " ")
}

// mentioned matches an object in a text: KIND NAME, KIND NAMESPACE/NAME, or KIND/NAME.
var mentioned = regexp.MustCompile(`\b([A-Z][A-Za-z]+|cluster)[ /](?:([a-z0-9-]+)/)?([a-z0-9][a-z0-9.-]*)`)

// kinds are the names of the kinds in stories.
//
//nolint:gochecknoglobals // It is a constant.
var kinds = func() map[string]bool {
	all := map[string]bool{}
	for _, k := range slices.Concat(ofHub, workloadKinds, []kind{injectionKind, podKind, budgetKind}) {
		all[k.name] = !strings.HasSuffix(k.name, kindReport.name) // A story names the object of a Propagation, not the Propagation.
	}
	return all
}()

func mentions(text string) (all []mention) {
	for _, m := range mentioned.FindAllStringSubmatch(text, -1) {
		o := mention{m[1], m[2], strings.TrimRight(m[3], ".-")}
		isCluster := slices.ContainsFunc(clusterNames, func(name string) bool { return o.name == name || o.name == secondNames[name] })
		if kinds[o.kind] || (o.kind == "cluster" && isCluster) {
			all = append(all, o)
		}
	}
	return all
}

// replica matches a process of Refract.
var replica = regexp.MustCompile(`\b(refract|injector)-[ab]\.\d+\b`)

// teller selects and writes the lines of a story.
type teller struct {
	*Result

	objects  []mention // The objects of the violation.
	policies []mention // The policies that these objects named at the start.
	lines    []telling
	others   int  // Number of omitted writes of Refract.
	there    int  // Number of omitted objects that existed at the start.
	again    int  // Number of repetitions of the last two lines.
	broken   bool // Whether the last line is the act that broke the promise.
}

// telling is a line of a story.
type telling struct {
	Entry

	text string
}

// concerns reports whether a text is about one of the objects. A cluster counts only if the text names it first.
func concerns(text string, objects []mention) bool {
	for i, o := range mentions(text) {
		if (i == 0 || o.kind != "cluster") && o.isIn(objects) {
			return true
		}
	}
	return false
}

// choose selects the lines.
func (t *teller) choose() {
	for _, e := range t.Entries {
		if e.Actor == atStart && concerns(e.Text, t.objects) {
			t.policies = append(t.policies, slices.DeleteFunc(mentions(e.Text), func(m mention) bool { return !strings.HasSuffix(m.kind, "Policy") })...)
		}
	}
	for i, e := range t.Entries {
		if e.Actor == violated {
			return // Later entries have no effect on the violation.
		}
		switch {
		case t.breaks(i):
			t.broken = e.Actor != atEnd
			t.add(e)
		case e.Actor == atStart && !concerns(e.Text, t.objects) && !subject(e.Text).isIn(t.policies):
			t.there++
		case replica.MatchString(e.Actor) && !concerns(e.Text, t.objects):
			t.others++
		case replica.MatchString(e.Actor) && t.repeats(e):
		default:
			t.add(e)
		}
	}
}

// breaks reports whether an entry is the act that breaks the promise, or the final check that detects the violation.
func (t *teller) breaks(at int) bool {
	if at+1 == len(t.Entries) {
		return false
	}
	e, next := t.Entries[at], t.Entries[at+1]
	return next.Actor == violated && next.After == e.After && (e.Actor == atEnd || strings.Contains(t.Violation.Message, e.Actor))
}

// add appends an entry as a line.
func (t *teller) add(e Entry) {
	t.again = 0
	step := strconv.Itoa(e.Step)
	switch {
	case e.Step == 0:
		step = "start"
	case e.Step > t.Steps:
		step = "end"
	}
	t.lines = append(t.lines, telling{e, fmt.Sprintf("%4d  %5s %9s  %s: %s\n", len(t.lines)+1, step, sinceStart(e.After), e.Actor, e.Text)})
}

// repeats counts an entry that equals the line before the last one. The story omits such entries.
func (t *teller) repeats(e Entry) bool {
	n := len(t.lines)
	if n < 2 { //nolint:mnd // Two lines in turn.
		return false
	}
	if of := t.lines[n-2+t.again%2]; of.Actor != e.Actor || of.Text != e.Text {
		return false
	}
	t.again++
	last := &t.lines[n-1]
	first, _, _ := strings.Cut(last.text, "\n")
	last.text = fmt.Sprintf("%s\n%24s… and the last two lines in turn, %d more lines, until %s\n", first, "", t.again, sinceStart(e.After))
	return true
}

// head writes the introduction of the story.
func (t *teller) head(b *strings.Builder, seed uint64, whole *Result) {
	fmt.Fprintf(b, "The history of seed %d, a run of the real controllers in a simulated fleet.\n", seed)
	switch v := whole.Violation; {
	case v == nil:
		fmt.Fprintf(b, "It has %d steps. All promises are kept.\n", t.Steps)
	case whole.Steps > t.Steps:
		fmt.Fprintf(b, "Its plan has %d steps, and breaks a promise in step %d. %d of these steps are enough for that: "+
			"the others are left out, and what is left is numbered anew.\n", whole.Steps, v.Step, t.Steps)
		if v.Message != t.Violation.Message {
			fmt.Fprintf(b, "With all steps it is: %s\n", v.Message)
		}
	default:
		fmt.Fprintf(b, "Its plan has %d steps, and breaks a promise in step %d: all before it are told, and none was left out.\n", t.Steps, v.Step)
	}
	fmt.Fprintf(b, "In each step somebody acts or some time passes; then Refract and the clusters go on for some seconds. "+
		"Refract made %d requests.\n", t.Requests)
}

// legend describes the actors.
func (t *teller) legend(b *strings.Builder) {
	names, processes := make([]map[string]bool, len(actors)), map[string]bool{}
	var text strings.Builder
	for _, l := range t.lines {
		text.WriteString(l.text)
		if i := slices.IndexFunc(actors, func(a actor) bool { return a.is.MatchString(l.Actor) }); i >= 0 {
			if names[i] == nil {
				names[i] = map[string]bool{}
			}
			names[i][l.Actor] = true
		}
	}
	if t.Violation != nil {
		text.WriteString(t.Violation.Message)
	}
	for _, name := range replica.FindAllString(text.String(), -1) {
		processes[name] = true
	}
	b.WriteString("\nWho acts:\n")
	of := map[string]int{}
	for _, name := range t.Processes {
		is, _, _ := strings.Cut(name, ".")
		of[is]++
		if processes[name] {
			fmt.Fprintf(b, "  %s = %s\n", name, processOf(is, of[is]))
		}
	}
	for i, a := range actors {
		if names[i] != nil {
			fmt.Fprintf(b, "  %s = %s\n", list(slices.Sorted(maps.Keys(names[i]))), a.says)
		}
	}
}

// processOf describes a process. The number in its name counts the processes of all replicas.
func processOf(name string, n int) string {
	program, which, _ := strings.Cut(name, "-")
	text := "replica " + which + pickBy(program == "injector",
		" of refract run --injection on cluster eu-1, which has older pods restarted", " of Refract on the hub")
	switch n {
	case 1:
		return text + ", its first process"
	default:
		again := pickBy(n-1 == 1, "once", strconv.Itoa(n-1)+" times")
		return fmt.Sprintf("%s, process %d of this replica: it was started again %s", text, n, again)
	}
}

// verdict writes the broken promise, the line that breaks it, and the lines about the same objects.
func (t *teller) verdict(b *strings.Builder) {
	v := t.Violation
	if v == nil {
		b.WriteString("All promises were kept.\n")
		return
	}
	how := pickBy(t.broken, "Line %d breaks a promise: %s.\n", "After line %d a promise is found broken: %s.\n")
	fmt.Fprintf(b, how, len(t.lines), v.Message)
	if p := promises[v.Invariant]; p.Says != "" {
		fmt.Fprintf(b, "The promise %q: %s (%s)\n", v.Invariant, p.Says, p.Where)
	}
	seen := map[string]bool{}
	for _, o := range t.objects {
		numbers := t.about(o)
		if name := o.String(); numbers != "" && o.name != "" && !seen[name] {
			seen[name] = true
			fmt.Fprintf(b, "Lines about %s: %s\n", name, numbers)
		}
	}
}

// about returns the numbers of the lines about an object.
func (t *teller) about(o mention) string {
	var parts []string
	for from := 0; from < len(t.lines); from++ {
		to := from
		for to < len(t.lines) && concerns(t.lines[to].Text, []mention{o}) {
			to++
		}
		switch to - from {
		case 0:
			continue
		case 1:
			parts = append(parts, strconv.Itoa(to))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", from+1, to))
		}
		from = to
	}
	return list(parts)
}

// leftOut explains the omitted steps and acts.
func (t *teller) leftOut(b *strings.Builder) {
	steps := map[int]bool{}
	for _, l := range t.lines {
		steps[l.Step] = true
	}
	last := t.Steps
	if t.Violation != nil {
		last = min(last, t.Violation.Step)
	}
	var silent []string
	for step := 1; step <= last; step++ {
		if !steps[step] {
			silent = append(silent, strconv.Itoa(step))
		}
	}
	if t.others+t.there > 0 {
		fmt.Fprintf(b, "Not told, as the violation does not name them: %d writes of Refract to other objects, and %d objects that were there at the start.\n",
			t.others, t.there)
	}
	if len(silent) > 0 {
		fmt.Fprintf(b, "Steps without a line: %s: what was drawn could not be done, and Refract did nothing to these objects.\n", list(silent))
	}
}

// sinceStart formats a time since the start as minutes and seconds.
func sinceStart(after time.Duration) string {
	return fmt.Sprintf("%d:%06.3f", int(after.Minutes()), (after % time.Minute).Seconds())
}
