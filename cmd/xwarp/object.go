package main

import (
	"cmp"
	"encoding"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

	"xwarp/engine/daemon/control"
	"xwarp/engine/ranges"
)

// objectCommand returns the commands of an object, as in iproute2's rdma: OBJECT [show|list|help]. show is the default.
func objectCommand(name string, o *operatorFlags) (object, show *cobra.Command) {
	object = &cobra.Command{Use: name}
	show = &cobra.Command{Use: "show", Aliases: []string{"list"}}
	f := object.PersistentFlags()
	o.addFlags(f, true)
	f.BoolP("pretty", "p", false, "accepted for compatibility; JSON is always indented")
	f.BoolP("details", "d", false, "accepted for compatibility; details are always shown")
	object.AddCommand(show)
	return object, show
}

// defaultShow returns the function of an object's command that is called without a subcommand. Without arguments it
// calls show. It prints the help for the argument "help", and refuses all others.
func defaultShow(show func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && args[0] == "help" {
			return cmd.Help()
		}
		if len(args) > 0 {
			return usagef("unknown command %q: use %s show", args[0], cmd.Name())
		}
		return show(cmd, nil)
	}
}

// leadingFlags matches those flags before the object that rdma accepts there and xwarp has.
var leadingFlags = regexp.MustCompile(`^(-[jpd]+|--json|--pretty|--details)$`)

// rearrange moves options from before the object to behind it, and joins --watch to its optional time. cobra supports
// neither.
func rearrange(root *cobra.Command, args []string) []string {
	i := 0
	for i < len(args) && leadingFlags.MatchString(args[i]) {
		i++
	}
	if i == len(args) || strings.HasPrefix(args[i], "-") {
		return args
	}
	object, _, err := root.Find(args[i : i+1])
	if err != nil {
		return args
	}
	args = slices.Concat(args[i:i+1], args[:i], args[i+1:])
	if f := object.Flags().Lookup("watch"); f == nil &&
		object.PersistentFlags().Lookup("watch") == nil {
		return args
	}
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		switch time, short := strings.CutPrefix(args[i], "-w"); {
		case args[i] == "-w" || args[i] == "--watch":
			if i+1 < len(args) && len(args[i+1]) > 0 &&
				strings.Contains("0123456789.", args[i+1][:1]) {
				args = slices.Replace(args, i, i+2, "--watch="+args[i+1])
			}
		case short && !strings.HasPrefix(time, "="):
			args[i] = "--watch=" + time
		}
	}
	return args
}

// prefixOf returns the first of words that begins with text. It returns "" if none does, or if text is empty.
func prefixOf(words []string, text string) string {
	if i := slices.IndexFunc(words, func(w string) bool {
		return text != "" && strings.HasPrefix(w, text)
	}); i >= 0 {
		return words[i]
	}
	return ""
}

// filters are the arguments after the kind of an object: link DEV/PORT, dev DEV, and pairs of key and value.
type filters struct {
	device   string
	notFound string // why the device is not found, after "is"
	keys     map[string]string
}

func (f *filters) parse(args, keys []string) error {
	f.keys = map[string]string{}
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			return usagef("missing value after %q", args[i])
		}
		key, value := args[i], args[i+1]
		switch {
		case key == "link" || key == "dev":
			f.device = value
		case slices.Contains(keys, key):
			f.keys[key] = value
		default:
			return usagef("unknown filter %q: use link, dev or one of %v", key, keys)
		}
	}
	return nil
}

// resolve finds the device, by the name of its interface or as xwarpN, and removes the objects of other devices from s.
func (f *filters) resolve(s *control.Snapshot) error {
	if f.device == "" {
		return nil
	}
	name, port, isLink := strings.Cut(f.device, "/")
	if isLink && port != "1" {
		return usagef("device %q has no port %s, only port 1", name, port)
	}
	var names []string
	found, ifname := "", "" // ifname: current name, if name is an alternative name of an interface
	if l, err := netlink.LinkByName(name); err == nil {
		ifname = l.Attrs().Name
	}
	for i := range s.Devices {
		n := s.Devices[i].Name
		names = append(names, n)
		if n == name || found == "" && (name == "xwarp"+strconv.Itoa(i) ||
			ifname != "" && ifname == s.Devices[i].Interface) {
			found = n
		}
	}
	if found == "" {
		return usagef("%q is %s; the devices are %v", name, cmp.Or(f.notFound, "not a device"),
			names)
	}
	f.device = found
	s.QPs, s.CQs = control.On(found, s.QPs), control.On(found, s.CQs)
	s.SRQs, s.PDs = control.On(found, s.SRQs), control.On(found, s.PDs)
	s.MRs, s.MWs = control.On(found, s.MRs), control.On(found, s.MWs)
	s.Listeners, s.Sessions = control.On(found, s.Listeners), control.On(found, s.Sessions)
	s.SAs, s.Statistics = control.On(found, s.SAs), control.On(found, s.Statistics)
	s.Exports = slices.DeleteFunc(s.Exports, func(e control.ExportState) bool {
		return e.Device != found
	})
	return nil
}

// apply removes the rows that do not match the filters.
func (f *filters) apply(rows reflect.Value) {
	n := 0
	for i := range rows.Len() {
		if f.match(rows.Index(i)) {
			rows.Index(n).Set(rows.Index(i))
			n++
		}
	}
	rows.SetLen(n)
}

func (f *filters) match(row reflect.Value) bool {
	for key, want := range f.keys {
		ok := false
		walkRow(row, func(name string, v reflect.Value, _ bool) {
			ok = ok || name == key && matches(v, want)
		})
		if !ok {
			return false
		}
	}
	return true
}

// matches compares a number with a list of numbers and ranges, and other values as text without case.
func matches(v reflect.Value, want string) bool {
	text := valueText(v)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return strings.EqualFold(text, want)
	}
	return ranges.Contain(want, n)
}

// valueText formats a value as its JSON does.
func valueText(v reflect.Value) string {
	v = reflect.Indirect(v)
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		b, _ := m.MarshalText() // addresses and times: cannot fail
		return string(b)
	}
	return fmt.Sprint(v.Interface())
}

// walkRow calls f for each field of a row, including those of embedded structs.
func walkRow(row reflect.Value, f func(name string, v reflect.Value, omitempty bool)) {
	for i := range row.NumField() {
		field := row.Type().Field(i)
		if field.Anonymous {
			walkRow(row.Field(i), f)
			continue
		}
		name, opts, _ := strings.Cut(field.Tag.Get("json"), ",")
		f(name, row.Field(i), strings.HasPrefix(opts, "omit"))
	}
}

// kindKeys returns the JSON keys of a kind's rows.
func kindKeys(kind string) (keys []string) {
	row := reflect.Zero((&resourceInfo{}).rows(kind).Type().Elem())
	walkRow(row, func(name string, _ reflect.Value, _ bool) { keys = append(keys, name) })
	return keys
}

func completeResource(_ *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return kinds, noFiles
	case len(args)%2 == 0 && args[len(args)-1] != "link" && args[len(args)-1] != "dev":
		return nil, noFiles // the value of a key
	}
	kind := prefixOf(kinds, args[0])
	words, directive := completeLink(nil, args[1:], "")
	if len(args)%2 == 1 && kind != "" {
		words = append(words, kindKeys(kind)...)
	}
	return words, directive
}

// completeLink completes link DEV/PORT.
func completeLink(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args)%2 == 0:
		return []string{"link", "dev"}, noFiles
	case args[len(args)-1] == "link":
		ports := interfaces()
		for i := range ports {
			ports[i] += "/1"
		}
		return ports, noFiles
	}
	return interfaces(), noFiles
}

// interfaces returns the names of the network interfaces of this host.
func interfaces() (names []string) {
	all, _ := net.Interfaces()
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}
