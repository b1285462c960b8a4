package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Write is one request that has changed a cluster, or was meant to.
type Write struct {
	Time      time.Time // When it arrived.
	Done      time.Time // When it was answered.
	Agent     string    // The user agent up to the first blank, such as refract/one.
	User      string
	Verb      string // create, update, patch, delete or deletecollection.
	Resource  string // The plural name of the type; with the subresource, if any, after a slash.
	Group     string
	Namespace string
	Name      string
	Code      int // HTTP.
}

func (w Write) String() string {
	return fmt.Sprintf("%s %s (%s): %s %s %s/%s: %d",
		w.Time.Format("15:04:05.000"), w.Agent, w.User, w.Verb, w.Resource, w.Namespace, w.Name, w.Code)
}

// Writes returns the writes of refract that a cluster's API server has recorded since
// the Env was opened, in the order of their arrival. Reviews of rights, which change
// nothing, are not among them.
func (e *Env) Writes(cluster string) ([]Write, error) {
	path, err := e.View.AuditLog(cluster)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // It was only read from.
	var out []Write
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // A line without an end is still being written.
			return byArrival(out), ignoreEOF(err)
		}
		w, ok, err := parseWrite(line)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if ok && w.Time.After(e.began) {
			out = append(out, w)
		}
	}
}

// parseWrite reads one event; ok is false if it is not what Writes is about.
func parseWrite(line []byte) (w Write, ok bool, err error) {
	var e struct {
		Verb      string `json:"verb"`
		UserAgent string `json:"userAgent"`
		User      struct {
			Username string `json:"username"`
		} `json:"user"`
		ObjectRef struct {
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
			APIGroup    string `json:"apiGroup"`
			Namespace   string `json:"namespace"`
			Name        string `json:"name"`
		} `json:"objectRef"`
		ResponseStatus struct {
			Code int `json:"code"`
		} `json:"responseStatus"`
		RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
		StageTimestamp           time.Time `json:"stageTimestamp"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return Write{}, false, err
	}
	agent, _, _ := strings.Cut(e.UserAgent, " ")
	if name, _, _ := strings.Cut(agent, "/"); name != "refract" || e.ObjectRef.APIGroup == "authorization.k8s.io" {
		return Write{}, false, nil
	}
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	return Write{
		Time: e.RequestReceivedTimestamp, Done: e.StageTimestamp, Agent: agent, User: e.User.Username, Verb: e.Verb,
		Resource: resource, Group: e.ObjectRef.APIGroup, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name, Code: e.ResponseStatus.Code,
	}, true, nil
}

func byArrival(all []Write) []Write {
	slices.SortStableFunc(all, func(a, b Write) int { return a.Time.Compare(b.Time) })
	return all
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
