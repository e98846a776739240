package upstream

import (
	"os/exec"
	"unsafe"

	"golang.org/x/sys/windows"
)

// group is the job object of a child. It is closed with us, whatever way we
// end, and the system then kills all that is in it.
type group windows.Handle

// forker starts children.
type forker struct{}

func newForker() *forker { return &forker{} }

// start starts cmd in a job of its own.
func (*forker) start(cmd *exec.Cmd) (group, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		windows.CloseHandle(job)
		return 0, err
	}
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(cmd.Process.Pid))
	if err == nil {
		err = windows.AssignProcessToJobObject(job, process)
		windows.CloseHandle(process)
	}
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		windows.CloseHandle(job)
		return 0, err
	}
	return group(job), nil
}

func (*forker) close() {}

// terminate is nothing on Windows: a console-less child has no signal that
// asks it to leave. It has seen its stdin close.
func (g group) terminate() {}

// kill ends every process of the job.
func (g group) kill() { _ = windows.TerminateJobObject(windows.Handle(g), 1) }

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION of winnt.h.
type accounting struct {
	TotalUserTime, TotalKernelTime, ThisPeriodTotalUserTime, ThisPeriodTotalKernelTime int64
	TotalPageFaultCount, TotalProcesses, ActiveProcesses, TotalTerminatedProcesses     uint32
}

// alive reports whether the job has a process.
func (g group) alive() bool {
	var info accounting
	err := windows.QueryInformationJobObject(windows.Handle(g), windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	return err == nil && info.ActiveProcesses > 0
}
