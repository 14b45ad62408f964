package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Setting is a flag, a feature gate or an environment variable of Flux's controllers, and what becomes of it.
type Setting struct {
	Controller string `json:"controller"`
	Name       string `json:"name"`
	Value      string `json:"value,omitempty"`
	Becomes    string `json:"becomes,omitempty"` // our flag; "" if there is none
	Note       string `json:"note,omitempty"`    // why there is none
	IsUsual    bool   `json:"isUsual,omitempty"` // every installation has it, or it is our default
}

const (
	featureGatesFlag = "feature-gates"
	strictGate       = "StrictPostBuildSubstitutions"
	remoteBasesFlag  = "no-remote-bases"
	eventsFlag       = "events-addr"
	selectorFlag     = "watch-label-selector"
	advAddrFlag      = "storage-adv-addr"
)

// strictSince is the first version of kustomize-controller in which missing variables are errors by default.
var strictSince = semver.MustParse("1.9.0")

// installed are the flags that every installation sets, with their own values for Sluice.
var installed = map[string]string{
	eventsFlag: "events stay in the process", "storage-path": "set by the installation", advAddrFlag: "set by the " +
		"installation", "enable-leader-election": "set by the installation", "log-encoding": "set by the installation",
	"storage-addr": "set by the installation", "metrics-addr": "set by the installation",
	"health-addr": "set by the installation", "receiverAddr": "set by the installation",
	selectorFlag: "shards end with the migration",
}

// handledEnvironment are environment variables that the manifests of Flux set.
var handledEnvironment = []string{"RUNTIME_NAMESPACE", "GOMEMLIMIT", "GOMAXPROCS", "TUF_ROOT", "HOME"}

// mapper collects the flags of our process from those of several controllers.
type mapper struct {
	*Engine
	values   map[string]string // by flag
	sources  map[string]string // the controller that set a flag
	gates    map[string]string // by feature gate
	settings []Setting         // in the order of the Deployments
	warnings []string
}

// settings returns what our controllers are started with to behave as those of Flux.
func (e *Engine) settings(controllers []Controller) (Settings, []Setting, []string) {
	m := &mapper{Engine: e, values: map[string]string{}, sources: map[string]string{}, gates: map[string]string{}}
	s := Settings{}
	for _, c := range controllers {
		if !c.Moves {
			continue
		}
		if !slices.Contains(s.Controllers, c.Ours()) {
			s.Controllers = append(s.Controllers, c.Ours())
		}
		m.flags(c)
		m.environment(c)
	}
	s.Controllers = append(s.Controllers, "gating-controller")
	m.defaults(controllers)
	for _, name := range slices.Sorted(maps.Keys(m.values)) {
		s.Args = append(s.Args, "--"+name+"="+m.values[name])
	}
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(m.gates)) {
		gates = append(gates, name+"="+m.gates[name])
	}
	if len(gates) > 0 {
		s.Args = append(s.Args, "--"+featureGatesFlag+"="+strings.Join(gates, ","))
	}
	s.Args = append(s.Args, e.scopeArgs(s)...)
	return s, m.settings, m.warnings
}

// flags maps the flags of a controller.
func (m *mapper) flags(c Controller) {
	for _, container := range c.live.Spec.Template.Spec.Containers {
		for _, arg := range container.Args {
			name, value, found := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if !found {
				value = "true"
			}
			if name == featureGatesFlag {
				m.featureGates(c, value)
				continue
			}
			m.settings = append(m.settings, m.flag(c, name, value))
		}
	}
}

func (m *mapper) flag(c Controller, name, value string) Setting {
	s := Setting{Controller: c.Deployment, Name: "--" + name, Value: value}
	info := m.Flag(name)
	reason, isInstalled := installed[name]
	switch {
	case isInstalled:
		s.Note, s.IsUsual = reason, true
	case !info.Known:
		s.Note = "unknown flag"
		m.warn("Deployment '%s' sets --%s, which Sluice does not know. Check whether you need it", c.Deployment, name)
	case info.Ignored != "":
		s.Note = "no effect: " + info.Ignored
	case info.Default == value:
		s.Note, s.IsUsual = "default of Sluice", true
	default:
		m.set(c, name, value)
		s.Becomes = "--" + name + "=" + m.values[name]
	}
	return s
}

// set sets a flag of our process. Of numbers, the greater one is used, since one process does the work of all.
func (m *mapper) set(c Controller, name, value string) {
	before, isSet := m.values[name]
	if isSet && before != value {
		a, errA := strconv.ParseFloat(before, 64)
		b, errB := strconv.ParseFloat(value, 64)
		if errA != nil || errB != nil {
			m.warn("--%s is %q for Deployment '%s' and %q for '%s'; Sluice runs with %q for both. Install the "+
				"controllers as separate Deployments if they must differ", name, before, m.sources[name], value,
				c.Deployment, before)
			return
		}
		if a >= b {
			return
		}
	}
	m.values[name], m.sources[name] = value, c.Deployment
}

func (m *mapper) featureGates(c Controller, value string) {
	for _, pair := range strings.Split(value, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		s := Setting{Controller: c.Deployment, Name: "feature gate " + name, Value: value}
		info := m.Gate(name)
		switch {
		case !info.Known:
			s.Note = "unknown feature gate"
			m.warn("Deployment '%s' sets the feature gate '%s', which Sluice does not know. Check whether you need it",
				c.Deployment, name)
		case info.Ignored != "":
			s.Note = info.Ignored
		default:
			m.gates[name] = value
			s.Becomes = "--" + featureGatesFlag + "=" + name + "=" + value
		}
		m.settings = append(m.settings, s)
	}
}

// environment reports environment variables that someone added.
func (m *mapper) environment(c Controller) {
	for _, container := range c.live.Spec.Template.Spec.Containers {
		for _, v := range container.Env {
			if slices.Contains(handledEnvironment, v.Name) {
				continue
			}
			m.settings = append(m.settings, Setting{Controller: c.Deployment, Name: "env " + v.Name,
				Note: "not copied: add it to the Deployment of Sluice if it is needed"})
			m.warn("Deployment '%s' sets the environment variable '%s', which is not copied. Add it "+
				"to the Deployment of "+
				"Sluice after the migration if it is needed", c.Deployment, v.Name)
		}
	}
}

// defaults sets flags whose default differs between Flux and Sluice.
func (m *mapper) defaults(controllers []Controller) {
	for _, c := range controllers {
		if !c.Moves || c.Name != kustomizeController {
			continue
		}
		if _, isSet := m.gates[strictGate]; !isSet {
			if v, err := semver.NewVersion(c.Version); err == nil && v.LessThan(strictSince) {
				m.gates[strictGate] = "false"
				m.settings = append(m.settings, Setting{Controller: c.Deployment, Name: "feature gate " + strictGate,
					Value: "false", Becomes: "--" + featureGatesFlag + "=" + strictGate + "=false",
					Note: "default of " + cmp.Or(c.Version, "this version")})
			}
		}
		if _, isSet := m.values[remoteBasesFlag]; !isSet && !c.hasFlag(remoteBasesFlag) {
			m.values[remoteBasesFlag] = "false"
			m.settings = append(m.settings, Setting{Controller: c.Deployment, Name: "--" + remoteBasesFlag,
				Value: "false", Becomes: "--" + remoteBasesFlag + "=false", Note: "default of Flux"})
		}
	}
}

func (c Controller) hasFlag(name string) bool {
	_, found := c.flag(name)
	return found
}

// flag returns the value of a flag of the Deployment.
func (c Controller) flag(name string) (string, bool) {
	for _, container := range c.live.Spec.Template.Spec.Containers {
		for _, arg := range container.Args {
			if n, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "="); n == name {
				return value, true
			}
		}
	}
	return "", false
}

func (m *mapper) warn(format string, args ...any) {
	if w := fmt.Sprintf(format, args...); !slices.Contains(m.warnings, w) {
		m.warnings = append(m.warnings, w)
	}
}
